// What the page makes of explanations and of decisions of the placement daemon. Run by test_pure_functions.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import { changeInWords, gainInWords, history, onlyHere, policyInWords, rowsOfEngines, valueOf } from "../../../router/ui/static/plan.js";
import { courseInWords, courseOf, isBad, merged, notesOf, promisesOf, rowOf, rowOfTold, rowsOfDecision, tell, ticksOf, whyNot } from "../../../router/ui/static/story.js";

const seen = (id, role, more = {}) => ({ id, role, num_prefills: 0, backlog_s: 0, prefill_s: 0.05, num_cached_tokens: 0, slack_s: null, num_running: 0, num_tokens: 0, watermark: 0, status_age_s: 0.1, ...more });
const decided = (at_s, prefill, decode, more = {}) => ({
  type: "decided", at_s, attempt: 0, policy: "tropical", verdict: "dispatch", reason: "1: idle prefill engine", num_tokens: 100, deadline_s: 1, prefill_engine: prefill, decode_engine: decode, prefill_s: 0.05, predicted_ttft_s: 0.05,
  numbers: {}, avoided: [], broken: [], engines: [], num_engines: 0, ...more,
});
const first = (at_s, engine) => ({ type: "first_token", at_s, engine, since_dispatch_s: at_s, predicted_s: 0.05 });
const moved = (at_s, engine) => ({ type: "moved", at_s, engine });
const ended = (at_s, more = {}) => ({ type: "ended", at_s, outcome: "finished", reason: "stop", num_tokens: 11, tpot_s: 0.02, ...more });
const request = (events, more = {}) => ({ id: "r", service: "s", num_prompt_tokens: 100, max_tokens: 50, slo_ttft_s: 1, slo_tpot_s: 0.1, age_s: 5, admitted_s: 0.01, events, ...more });
const short = ({ spans }) => spans.map(({ lane, phase, from, to }) => `${lane} ${phase} ${from}-${to}`);

const handedOver = request([decided(0.1, "p", "d"), { type: "accepted", at_s: 0.11, engine: "p" }, first(0.2, "p"), moved(0.3, "d"), { type: "resumed", at_s: 0.31, engine: "d", since_s: 0.2 }, ended(1)]);

test("a request that is handed over waits, is prefilled, travels and decodes", () => {
  const course = courseOf("g", handedOver);
  assert.deepEqual(short(course), ["g read 0-0.01", "g wait 0.01-0.1", "p prefill 0.1-0.2", "d transfer 0.2-0.3", "d decode 0.3-1"]);
  assert.deepEqual(course.lanes, ["g", "p", "d"]);
  assert.deepEqual(course.marks.map(({ words, number }) => `${number} ${words}`), ["3 first token", "6 finished"]);
  assert.equal(course.migrations, 0);
  assert.match(courseInWords(course, handedOver), /queue and prefill, p, 100 ms to 200 ms; .*TTFT promised: 1000 ms, at 1000 ms/);
});

test("migrations, refusals and interruptions are marked, and what runs ends now", () => {
  const one = request([decided(0.1, "a", "a"), { type: "refused", at_s: 0.15, engine: "a", code: "no_slack", reason: "busy" }, decided(0.2, "b", "b"), first(0.3, "b"), moved(0.5, "c"), { type: "interrupted", at_s: 0.7, reason: "c died", num_tokens: 4 }, decided(0.8, "a", "a")], { admitted_s: 0 });
  const course = courseOf("g", one);
  assert.deepEqual(short(course), ["g wait 0-0.1", "a prefill 0.1-0.15", "g wait 0.15-0.2", "b prefill 0.2-0.3", "b decode 0.3-0.5", "c decode 0.5-0.7", "g recovery 0.7-0.8", "a again 0.8-5"]);
  assert.deepEqual(course.marks.map(({ words }) => words), ["refused", "first token", "migrated", "interrupted"]);
  assert.equal(course.migrations, 1);
});

test("the promise of TPOT is when the last of as many tokens is due", () => {
  const [ttft, tpot] = promisesOf(handedOver).map(({ at }) => at);
  assert.equal(ttft, 1);
  assert.ok(Math.abs(tpot - 1.2) < 1e-9);
  assert.equal(promisesOf(request([])).length, 1);
});

test("an axis has round marks", () => {
  assert.deepEqual(ticksOf(1, 5).map((at) => at.toFixed(1)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
  assert.deepEqual(ticksOf(0, 5), [0]);
  assert.ok(ticksOf(123.4, 4).length <= 5);
});

test("events are told in sentences", () => {
  const sentences = handedOver.events.map((event) => tell(event, handedOver));
  assert.deepEqual(sentences, [
    "Rule “1: idle prefill engine”: sent to p, then d; first token predicted in 50 ms.", "p accepted it.",
    "First token, from p, 200 ms after its dispatch, predicted 50 ms (+300 %). TTFT 200 ms of 1000 ms: kept.",
    "d has it from here on.", "Tokens go on, from d, 110 ms after the last ones before.", "It finished: stop, 11 tokens. TPOT 20 ms of 100 ms: kept.",
  ]);
  assert.equal(tell(decided(0, null, null, { verdict: "wait", reason: "all busy" }), handedOver), "Wait: all busy.");
  assert.ok(isBad(ended(1, { tpot_s: 0.2 }), handedOver));
  assert.ok(!isBad(handedOver.events[0], handedOver));
});

test("each engine that was not chosen has its reasons", () => {
  const decision = decided(0.1, "p", "d", { engines: [seen("p", "prefill"), seen("d", "multiplex")] });
  const why = (role, more) => whyNot(seen("x", role, more), decision);
  assert.match(why("prefill", { backlog_s: 2 }), /^backlog 2000 ms and prefill 50 ms end 1150 ms after the deadline; its first token would come 2000 ms later than from p$/);
  assert.match(why("multiplex", { slack_s: 0.03 }), /its decodes can spare 30 ms, less than the prefill of 50 ms/);
  assert.match(why("multiplex", { watermark: 0.95 }), /95 % of its KV blocks are in use/);
  assert.match(why("decode", { num_tokens: 7 }), /holds 7 tokens, d 0/);
  assert.match(why("multiplex"), /a multiplex engine: the rule looked for a prefill engine/);
  assert.equal(why("prefill"), "no worse than p by these numbers: the rule preferred p");
});

test("a decision has rows for the chosen first, and for those that were avoided or broken", () => {
  const engines = [seen("b", "prefill"), seen("d", "decode"), seen("p", "prefill")];
  const rows = rowsOfDecision(decided(0.1, "p", "d", { engines, avoided: ["x"], broken: ["y"], num_engines: 4 }));
  assert.deepEqual(rows.map(({ id, part }) => `${id} ${part}`), ["p chosen for the prefill", "d chosen for the decode", "b ", "y ", "x "]);
  assert.equal(rows.at(-1).engine, null);
  assert.match(notesOf(decided(0, "p", "d", { engines, num_engines: 4 }))[0], /^3 of the 4 engines/);
});

test("rows of the list say what is late, and the newer account of a request wins", () => {
  const row = rowOf("g", handedOver, 100);
  assert.deepEqual([row.state, row.isLate, row.where, row.arrivedAt], ["finished", false, "p → d", 95]);
  assert.ok(rowOf("g", request([first(1.5, "p")]), 100).isLate);
  const told = rowOfTold({ id: "r", service: "s", what: "ended", outcome: "finished", kept: false, tokens: 3, arrivedAt: 95 }, { ttft_s: 1 });
  assert.ok(told.isLate);
  assert.equal(merged([rowOf("g", request([first(0.2, "p")]), 100)], [told], 10)[0].state, "finished");
  assert.equal(merged([row], [{ ...told, id: "q", arrivedAt: 99 }], 1)[0].id, "q");
});

const engineRow = (id, role, ...services) => ({ id, role, state: "ready", services: services.map((name) => ({ name })), loading: [] });

test("what the daemon found is told as a change of each engine", () => {
  const engines = [engineRow("a", "prefill", "x"), engineRow("b", "decode", "x")];
  const places = { a: { role: "decode", services: ["y"] }, b: { role: "decode", services: ["x"] } };
  const [a, b] = rowsOfEngines(engines, { verdict: "replace", places });
  assert.equal(changeInWords(a.change), "becomes a decode engine, loads y, lets go of x");
  assert.equal(b.change, null);
  assert.equal(rowsOfEngines(engines, { verdict: "keep", places })[0].found, null);
  assert.equal(rowsOfEngines(engines, null)[0].found, null);
  assert.deepEqual(onlyHere([...engines, engineRow("c", "decode", "z")], engineRow("c", "decode", "x", "z")), ["z"]);
});

test("the plan in force is part of the history, also if it was made before", () => {
  const made = { interval: 3, verdict: "replace" };
  const rows = history([{ interval: 9, at: 90 }, { interval: 8, at: 80 }], { made, made_age_s: 60 }, 100);
  assert.deepEqual(rows.map(({ interval, at, isInForce }) => [interval, at, isInForce]), [[9, 90, false], [8, 80, false], [3, 40, true]]);
  assert.equal(history([{ interval: 3, at: 40 }], { made, made_age_s: 60 }, 100).length, 1);
});

test("gains and policies are put in words, and typed values are read", () => {
  const forecast = (attainment) => ({ attainment, normalized_latency: 1.5 });
  assert.match(gainInWords({ predicted: forecast(0.5), proposed: forecast(0.9), num_loads: 1 }), /^With what was found 90.0 % would be in time instead of 50.0 %.* loads 1 copy of weights\.$/);
  assert.equal(gainInWords({ predicted: null, proposed: null, num_loads: 0 }), "");
  assert.equal(policyInWords("tropical", { watermark: 0.5, mode: "first" }), "tropical (watermark 0.5, mode first)");
  assert.deepEqual(["0.5", "true", "first", "[[1, 2]]"].map(valueOf), [0.5, true, "first", [[1, 2]]]);
});
