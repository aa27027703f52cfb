// What a request's explanation says, worked out for eyes and ears. Pure: no page, no clock.
//
// An explanation is one of those that GET /mesh/requests/ID answers (router/history/explain.py).

import { ms } from "./words.js";

export const PHASES = {
  read: "read and tokenised",
  wait: "waits at the gateway",
  prefill: "queue and prefill",
  transfer: "transfer",
  decode: "decode",
  again: "recomputed, then decode",
  recovery: "waits for recovery",
};
const VERDICTS = { wait: "Wait", reject: "Reject", give_up: "Give up" };
const plural = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const percent = (part) => `${Math.round(100 * part)} %`;

export const isOver = (one) => one.events.at(-1)?.type === "ended";
export const endOf = (one) => (isOver(one) ? one.events.at(-1) : null);
export const firstTokenOf = (one) => one.events.find(({ type }) => type === "first_token") ?? null;

// --- over time -----------------------------------------------------------------------------------------------------

// Spans {lane, phase, from, to} and marks {lane, at, words, number} of a request, in seconds from its arrival. `number`:
// of the event that the mark is of, counted from 1.
export function courseOf(gateway, one) {
  const course = { spans: [], marks: [], lanes: [], ends: lastMoment(one), migrations: 0 };
  let going = { lane: gateway, phase: "wait", from: one.admitted_s };
  let target = null;
  let hasTokens = false;
  const finish = (at) => {
    if (at > going.from) course.spans.push({ ...going, to: at });
  };
  const turn = (at, lane, phase) => {
    finish(at);
    going = { lane, phase, from: at };
  };
  const mark = (lane, event, words) => course.marks.push({ lane, at: event.at_s, words, number: one.events.indexOf(event) + 1 });
  const seeing = {
    decided(event) {
      if (event.verdict !== "dispatch") return;
      target = event.decode_engine;
      turn(event.at_s, event.prefill_engine, hasTokens ? "again" : "prefill");
    },
    refused(event) {
      mark(event.engine, event, "refused");
      turn(event.at_s, gateway, "wait");
    },
    first_token(event) {
      hasTokens = true;
      mark(event.engine, event, "first token");
      if (target !== null && target !== event.engine) turn(event.at_s, target, "transfer");
      else turn(event.at_s, event.engine, "decode");
    },
    moved(event) {
      if (["decode", "again"].includes(going.phase) && going.lane !== event.engine) {
        course.migrations += 1;
        mark(event.engine, event, "migrated");
      }
      turn(event.at_s, event.engine, "decode");
    },
    interrupted(event) {
      mark(going.lane, event, "interrupted");
      turn(event.at_s, gateway, "recovery");
    },
    ended: (event) => mark(going.lane, event, event.outcome),
  };
  if (one.admitted_s > 0) course.spans.push({ lane: gateway, phase: "read", from: 0, to: one.admitted_s });
  for (const event of one.events) seeing[event.type]?.(event);
  finish(course.ends);
  course.lanes = [...new Set([gateway, ...course.spans.map(({ lane }) => lane), ...course.marks.map(({ lane }) => lane)])];
  return course;
}

// What has not ended yet ends now.
const lastMoment = (one) => (isOver(one) ? endOf(one).at_s : Math.max(one.age_s, ...one.events.map(({ at_s }) => at_s)));

// What is promised, as moments. TPOT is a mean over all tokens: its moment is that of the last one of as many.
export function promisesOf(one) {
  const promises = [{ at: one.slo_ttft_s, words: `TTFT promised: ${ms(one.slo_ttft_s)}` }];
  const [first, end] = [firstTokenOf(one), endOf(one)];
  if (first && end && end.num_tokens > 1)
    promises.push({ at: first.at_s + (end.num_tokens - 1) * one.slo_tpot_s, words: `last token by TPOT of ${ms(one.slo_tpot_s)}` });
  return promises;
}

// Round marks of an axis from 0 to `longest`, at most `most` of them.
export function ticksOf(longest, most) {
  if (!(longest > 0)) return [0];
  const rough = longest / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10);
  return Array.from({ length: Math.floor(longest / step + 1e-9) + 1 }, (_, index) => index * step);
}

export function courseInWords(course, one) {
  const spans = course.spans.map(({ lane, phase, from, to }) => `${PHASES[phase]}, ${lane}, ${ms(from)} to ${ms(to)}`);
  const marks = course.marks.map(({ at, lane, words }) => `${words}, ${lane}, at ${ms(at)}`);
  return [...spans, ...marks, ...promisesOf(one).map(({ at, words }) => `${words}, at ${ms(at)}`)].join("; ");
}

// --- in sentences --------------------------------------------------------------------------------------------------

const telling = {
  accepted: (event) => `${event.engine} accepted it.`,
  refused: (event) => `${event.engine} refused it: ${event.code}: ${event.reason}.`,
  holds: (event) => (event.num_ahead === null ? `${event.engine} computes it.` : `${event.engine} has it, ${plural(event.num_ahead, "request")} before it.`),
  interrupted: (event) => `Interrupted after ${plural(event.num_tokens, "token")}: ${event.reason}. It waits again.`,
  moved: (event) => `${event.engine} has it from here on.`,
  resumed: (event) => `Tokens go on, from ${event.engine}, ${ms(event.at_s - event.since_s)} after the last ones before.`,
  decided: (event) => tellDecision(event),
  first_token(event, one) {
    const off = event.predicted_s > 0 ? ` (${event.since_dispatch_s >= event.predicted_s ? "+" : "−"}${percent(Math.abs(event.since_dispatch_s / event.predicted_s - 1))})` : "";
    return `First token, from ${event.engine}, ${ms(event.since_dispatch_s)} after its dispatch, predicted ${ms(event.predicted_s)}${off}. ${promise("TTFT", event.at_s, one.slo_ttft_s)}`;
  },
  ended(event, one) {
    const kept = event.tpot_s === null ? "" : ` ${promise("TPOT", event.tpot_s, one.slo_tpot_s)}`;
    return `It ${event.outcome === "cancelled" ? "was cancelled" : event.outcome === "rejected" ? "was rejected" : event.outcome}: ${event.reason}, ${plural(event.num_tokens, "token")}.${kept}`;
  },
};

export const tell = (event, one) => telling[event.type]?.(event, one) ?? event.type;

const promise = (name, seconds, promised) => `${name} ${ms(seconds)} of ${ms(promised)}: ${seconds <= promised ? "kept" : "broken"}.`;

export const isBad = (event, one) =>
  ["refused", "interrupted"].includes(event.type) ||
  (event.type === "decided" && event.verdict !== "dispatch") ||
  (event.type === "first_token" && event.at_s > one.slo_ttft_s) ||
  (event.type === "ended" && (["failed", "rejected"].includes(event.outcome) || event.tpot_s > one.slo_tpot_s));

function tellDecision(event) {
  if (event.verdict !== "dispatch") return `${VERDICTS[event.verdict] ?? event.verdict}: ${event.reason}.`;
  const again = event.attempt ? `, attempt ${event.attempt + 1}` : "";
  const way = event.prefill_engine === event.decode_engine ? `${event.prefill_engine} and stays there` : `${event.prefill_engine}, then ${event.decode_engine}`;
  const predicted = event.predicted_ttft_s === null ? "" : `; first token predicted in ${ms(event.predicted_ttft_s)}`;
  return `Rule “${event.reason}”${again}: sent to ${way}${predicted}.`;
}

// --- why not the others --------------------------------------------------------------------------------------------

// Rows {id, engine, part, why} of a decision, the chosen engines first. `engine`: what was seen of it, null if nothing.
export function rowsOfDecision(decision) {
  const seen = new Map(decision.engines.map((engine) => [engine.id, engine]));
  const chosen = [...new Set([decision.prefill_engine, decision.decode_engine].filter((id) => id !== null))];
  const others = decision.engines.filter(({ id }) => !chosen.includes(id)).sort((one, other) => one.backlog_s - other.backlog_s || one.id.localeCompare(other.id));
  const row = (id, part, why) => ({ id, engine: seen.get(id) ?? null, part, why });
  return [
    ...chosen.map((id) => row(id, partOf(id, decision), "")),
    ...others.map((engine) => row(engine.id, "", whyNot(engine, decision))),
    ...decision.broken.map((id) => row(id, "", "its circuit breaker is open: too much has failed there of late")),
    ...decision.avoided.map((id) => row(id, "", "avoided for a moment: it refused or failed this request just before")),
  ];
}

function partOf(id, decision) {
  if (decision.prefill_engine === decision.decode_engine) return "chosen for all of it";
  return id === decision.prefill_engine ? "chosen for the prefill" : "chosen for the decode";
}

const FULL = 0.9; // of KV blocks in use: where most policies draw the line

// Why an engine was not chosen, as far as what was seen of it says.
export function whyNot(engine, decision) {
  const left = decision.deadline_s - decision.at_s;
  const ready = engine.backlog_s + engine.prefill_s;
  const reasons = [];
  if (ready > left) {
    const busy = engine.backlog_s > 0 ? `backlog ${ms(engine.backlog_s)} and prefill ${ms(engine.prefill_s)} end` : `its prefill of ${ms(engine.prefill_s)} ends`;
    reasons.push(`${busy} ${ms(ready - left)} after the deadline`);
  }
  if (engine.role !== "prefill" && engine.slack_s !== null && engine.slack_s - engine.backlog_s < engine.prefill_s)
    reasons.push(`its decodes can spare ${ms(Math.max(0, engine.slack_s - engine.backlog_s))}, less than the prefill of ${ms(engine.prefill_s)}`);
  if (engine.watermark >= FULL) reasons.push(`${percent(engine.watermark)} of its KV blocks are in use`);
  const chosen = decision.engines.find(({ id }) => id === (engine.role === "decode" ? decision.decode_engine : decision.prefill_engine));
  if (chosen) reasons.push(...worseThan(chosen, engine));
  if (reasons.length) return reasons.join("; ");
  if (decision.verdict === "dispatch") return chosen ? `no worse than ${chosen.id} by these numbers: the rule preferred ${chosen.id}` : "the rule preferred others";
  return decision.reason;
}

function* worseThan(chosen, engine) {
  const [later, cached] = [engine.backlog_s + engine.prefill_s - chosen.backlog_s - chosen.prefill_s, chosen.num_cached_tokens - engine.num_cached_tokens];
  if (engine.role === "decode") {
    if (engine.num_tokens > chosen.num_tokens) yield `holds ${engine.num_tokens} tokens, ${chosen.id} ${chosen.num_tokens}`;
    return;
  }
  if (later > 0.0005) yield `its first token would come ${ms(later)} later than from ${chosen.id}`;
  if (cached > 0) yield `has ${plural(cached, "token")} less of its prompt cached than ${chosen.id}`;
  if (engine.role === chosen.role && engine.num_tokens > chosen.num_tokens) yield `holds ${engine.num_tokens} tokens, ${chosen.id} ${chosen.num_tokens}`;
  if (engine.role !== chosen.role) yield `a ${engine.role} engine: the rule looked for a ${chosen.role} engine`;
}

// What else is to be said of what a decision saw.
export function notesOf(decision) {
  const num = decision.engines.length;
  if (!num && decision.num_engines) return [`What it saw of ${plural(decision.num_engines, "engine")} is not kept any more, or none of them could serve it.`];
  if (num < decision.num_engines) return [`${num} of the ${decision.num_engines} engines in view; the others are not kept, or could not serve it.`];
  return [];
}

// --- the list ------------------------------------------------------------------------------------------------------

// A row of the list. `at`: seconds since the epoch, when the explanation was made.
export function rowOf(gateway, one, at) {
  const [first, end] = [firstTokenOf(one), endOf(one)];
  const sent = one.events.filter(({ type, verdict }) => type === "decided" && verdict === "dispatch").at(-1);
  const [ttftS, tpotS] = [first?.at_s ?? null, end?.tpot_s ?? null];
  const migrations = courseOf(gateway, one).migrations;
  return {
    id: one.id, service: one.service, arrivedAt: at - one.age_s, promptTokens: one.num_prompt_tokens, tokens: end?.num_tokens ?? null, ttftS, tpotS, migrations,
    where: sent ? [...new Set([sent.prefill_engine, sent.decode_engine])].join(" → ") : "",
    state: end ? end.outcome : first ? "running" : "waiting",
    isLate: ttftS > one.slo_ttft_s || tpotS > one.slo_tpot_s || (!first && !end && one.age_s > one.slo_ttft_s),
  };
}

// The same of a request that the feed told of. `service`: what is promised, if that is known.
export function rowOfTold(request, service) {
  const [ttftS, tpotS] = [request.ttftS ?? null, request.tpotS ?? null];
  const isEnded = request.what === "ended";
  return {
    id: request.id, service: request.service, arrivedAt: request.arrivedAt, promptTokens: request.promptTokens ?? null, tokens: isEnded ? request.tokens : null, ttftS, tpotS, migrations: request.migrations ?? 0,
    where: [...new Set([request.engine, request.decode].filter(Boolean))].join(" → "),
    state: isEnded ? request.outcome : ttftS === null ? "waiting" : "running",
    isLate: isEnded && request.outcome === "finished" ? request.kept === false : service !== undefined && ttftS > service.ttft_s,
  };
}

export const SHOWN = {
  all: { words: "all", suits: () => true },
  open: { words: "in flight", suits: ({ state }) => state === "running" || state === "waiting" },
  late: { words: "late", suits: ({ isLate }) => isLate },
  failed: { words: "failed or rejected", suits: ({ state }) => state === "failed" || state === "rejected" },
  migrated: { words: "migrated", suits: ({ migrations }) => migrations > 0 },
};

// Rows of both kinds, each request once, newest first. What was explained knows more of what has ended.
export function merged(explained, told, most) {
  const rows = new Map(told.map((row) => [row.id, row]));
  for (const row of explained) {
    const known = rows.get(row.id);
    const isNewer = known && SHOWN.open.suits(row) && !SHOWN.open.suits(known);
    if (!isNewer) rows.set(row.id, row);
  }
  return [...rows.values()].sort((one, other) => other.arrivedAt - one.arrivedAt).slice(0, most);
}
