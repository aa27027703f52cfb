// Numbers as people read them.

export const ms = (seconds) => (seconds === null || seconds === undefined ? "–" : seconds >= 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds * 1000)} ms`);
export const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });
export const short = (id) => (id.length > 18 ? `${id.slice(0, 8)}…${id.slice(-8)}` : id);
export const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en"));
export const ago = (seconds) => (seconds < 90 ? `${Math.round(seconds)} s ago` : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${(seconds / 3600).toFixed(1)} h ago`);
