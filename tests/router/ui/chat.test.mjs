// What the playground sends, and what it makes of the answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as chat from "../../../router/ui/static/chat.js";

const form = { service: "s", system: "", ttftMs: "", tpotMs: "", priority: "", seed: "", temperature: "", maxTokens: "", logprobs: false, further: "" };
const sent = (changes) => JSON.parse(JSON.stringify(chat.bodyOf({ ...form, ...changes }, [{ role: "user", content: "hi" }])));

test("a body has what was chosen, and nothing else", () => {
  assert.deepEqual(Object.keys(sent({})), ["model", "messages", "stream", "stream_options"]);
  const body = sent({ system: "be brief", seed: "0", temperature: "0.5", maxTokens: "7", logprobs: true, further: '{"stream": false, "tools": []}' });
  assert.deepEqual(body.messages.map(({ role }) => role), ["system", "user"]);
  assert.deepEqual([body.seed, body.temperature, body.max_tokens, body.top_logprobs, body.stream, body.tools], [0, 0.5, 7, 3, false, []]);
});

test("further fields that are no object are refused in words", () => {
  for (const further of ["{", "3", "null", "[1]"]) assert.throws(() => sent({ further }), /^Error: Further fields: /);
});

test("headers name only what was given", () => {
  assert.deepEqual(chat.headersOf(form, ""), {});
  assert.deepEqual(chat.headersOf({ ...form, ttftMs: " 200 ", priority: "-1" }, "k"), { "x-slo-ttft-ms": "200", "x-priority": "-1", "x-client-key": "k" });
});

const chunk = (delta, further = {}) => ({ choices: [{ delta, ...further }] });

test("an answer is folded from its chunks, and measured from its tokens", () => {
  const chunks = [[chunk({ role: "assistant" }), 1], [chunk({ content: "a" }), 100], [chunk({ content: "b" }), 150], [chunk({ content: "c" }, { finish_reason: "stop" }), 200], [{ choices: [], usage: { completion_tokens: 3 } }, 300]];
  const answer = chunks.reduce((so, [piece, now]) => chat.folded(so, piece, now), chat.emptyAnswer(0, {}));
  assert.deepEqual([answer.text, answer.finish], ["abc", "stop"]);
  assert.deepEqual(chat.measured(answer), { ttftS: 0.1, tpotS: 0.05, tokens: 3 });
  assert.deepEqual(chat.measured(chat.emptyAnswer(0, {})), { ttftS: null, tpotS: null, tokens: 0 });
});

test("an error of the stream is thrown in its words", () => {
  assert.throws(() => chat.folded(chat.emptyAnswer(0, {}), { error: { message: "engine lost" } }, 1), /engine lost/);
});

test("calls of tools come in pieces and are open until they are answered", () => {
  const pieces = [{ index: 0, id: "c1", function: { name: "look", arguments: '{"q"' } }, { index: 0, function: { arguments: ":1}" } }];
  const answer = pieces.reduce((so, piece) => chat.folded(so, chunk({ tool_calls: [piece] }), 1), chat.emptyAnswer(0, {}));
  const message = chat.messageOf(answer);
  assert.deepEqual(message.tool_calls[0].function, { name: "look", arguments: '{"q":1}' });
  assert.equal(chat.openCall([message]).id, "c1");
  assert.equal(chat.openCall([message, { role: "tool", tool_call_id: "c1", content: "4" }]), undefined);
});
