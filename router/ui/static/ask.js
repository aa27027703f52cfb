// Asks the gateway's admin address. The operator's key, where one is needed, stays in this tab.

const STORED = "meshserve-key";

export const key = {
  get: () => sessionStorage.getItem(STORED) || "",
  set: (text) => (text ? sessionStorage.setItem(STORED, text) : sessionStorage.removeItem(STORED)),
};

export function headers(further = {}) {
  const shown = key.get();
  return shown ? { authorization: `Bearer ${shown}`, ...further } : further;
}

export class Refusal extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function refusalOf(response) {
  try {
    const { error } = await response.json();
    return new Refusal(response.status, error.message, error.code);
  } catch {
    return new Refusal(response.status, `The gateway answered ${response.status}`, null);
  }
}

// The JSON of a path. Throws a Refusal with the gateway's own words, or one of status 0 where nobody answers.
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The gateway does not answer", null);
  }
  if (!response.ok) throw await refusalOf(response);
  return response.json();
}

export const post = (path, body, options = {}) =>
  ask(path, { method: "POST", body: JSON.stringify(body), ...options, headers: { "content-type": "application/json", ...options.headers } });
