// What the placement daemon says, worked out for people. Pure: no page, no clock.

const percent = (part) => `${(100 * part).toFixed(1)} %`;

// What a plan that was found would bring beside the one in force, as far as both were predicted; empty: they were not.
export function gainInWords({ predicted, proposed, num_loads: loads }) {
  if (!predicted || !proposed) return "";
  const change = loads ? `the change loads ${loads} cop${loads === 1 ? "y" : "ies"} of weights` : "the change loads nothing";
  return `With what was found ${percent(proposed.attainment)} would be in time instead of ${percent(predicted.attainment)}, with a normalised latency of ${proposed.normalized_latency.toFixed(2)} instead of ${predicted.normalized_latency.toFixed(2)}; ${change}.`;
}

// Rows of engines: what each holds and does now, and what the daemon found for it. `engines`: rows of the feed.
export function rowsOfEngines(engines, decision) {
  const places = decision && decision.verdict !== "keep" ? decision.places : {};
  return engines.map((row) => {
    const held = row.services.map(({ name }) => name).sort();
    const place = places[row.id];
    return { ...row, held, found: place ?? null, change: place ? changeOf(row, held, place) : null };
  });
}

// What would change: {role, added, removed}; null: nothing.
function changeOf(row, held, place) {
  const added = place.services.filter((name) => !held.includes(name));
  const removed = held.filter((name) => !place.services.includes(name));
  const role = place.role === row.role ? null : place.role;
  return added.length || removed.length || role ? { role, added, removed } : null;
}

export function changeInWords({ role, added, removed }) {
  return [role && `becomes a ${role} engine`, added.length && `loads ${added.join(", ")}`, removed.length && `lets go of ${removed.join(", ")}`].filter(Boolean).join(", ");
}

// Rows of services: of what was asked for and how it was, would be and would have been answered. `made`: as the plan in
// force was found.
export function rowsOfServices(decision, made) {
  const before = new Map((made?.services ?? []).map((one) => [one.name, one]));
  return (decision?.services ?? []).map((one) => ({ ...one, before: before.get(one.name) ?? null }));
}

// Decisions of the daemon, newest first: those that were heard, and the one that the plan in force comes from.
export function history(heard, status, at) {
  const made = status?.made;
  const isKnown = !made || heard.some(({ interval }) => interval === made.interval);
  const rows = isKnown ? heard : [...heard, { ...made, at: at - status.made_age_s }];
  return rows.toSorted((one, other) => other.interval - one.interval).map((row) => ({ ...row, isInForce: row.interval === made?.interval }));
}

// Text that was typed for a parameter, as the value that is meant: JSON where it is some, else a text.
export function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// A policy and its parameters in a few words.
export function policyInWords(name, parameters) {
  const settings = Object.entries(parameters ?? {}).map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return settings.length ? `${name} (${settings.join(", ")})` : `${name}`;
}

// Which services would have no ready engine without this one.
export function onlyHere(engines, engine) {
  const others = engines.filter((row) => row.id !== engine.id && row.state === "ready");
  const elsewhere = new Set(others.flatMap((row) => row.services.map(({ name }) => name)));
  return engine.services.map(({ name }) => name).filter((name) => !elsewhere.has(name));
}
