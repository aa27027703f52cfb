// Keeps the feed open: connects again when it ends, and waits for a key where one is asked for.

import { headers, refusalOf } from "./ask.js";
import { events } from "./events.js";
import { setLink, take } from "./store.js";

const SILENCE_MS = 40_000; // the gateway speaks at least every 15 s
const LONGEST_WAIT_MS = 10_000;
let again = () => {};

// Connect at once: there is a new key, or somebody asks for it.
export const reconnect = () => again();

export async function keepOpen() {
  for (let waitMs = 500; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
    try {
      await read(() => (waitMs = 500));
      setLink("lost", "The gateway ended the feed; connecting again");
    } catch (error) {
      setLink(error.status === 401 || error.status === 403 ? "locked" : "lost", error.message);
    }
    await new Promise((resolve) => {
      again = resolve;
      setTimeout(resolve, waitMs);
    });
  }
}

async function read(opened) {
  const abort = new AbortController();
  let silence = setTimeout(() => abort.abort(), SILENCE_MS);
  try {
    const response = await fetch("/mesh/feed", { headers: headers(), signal: abort.signal });
    if (!response.ok) throw await refusalOf(response);
    opened();
    setLink("live");
    for await (const event of events(response.body)) {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENCE_MS);
      if (event.event === "bye") return;
      take(JSON.parse(event.data));
    }
  } catch (error) {
    if (error.status !== undefined) throw error;
    throw new Error("The gateway does not answer; trying again");
  } finally {
    clearTimeout(silence);
    abort.abort();
  }
}
