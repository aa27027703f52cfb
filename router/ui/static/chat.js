// What the playground sends, and what it makes of the answer. Nothing here touches the page.

const number = (text) => (text.trim() === "" ? undefined : Number(text));

// The body of a request for `messages`. Throws an Error in words where the further fields are no JSON object.
export function bodyOf(form, messages) {
  const said = form.system.trim() ? [{ role: "system", content: form.system }, ...messages] : messages;
  const body = {
    model: form.service, messages: said, stream: true, stream_options: { include_usage: true },
    max_tokens: number(form.maxTokens), temperature: number(form.temperature), seed: number(form.seed),
    ...(form.logprobs ? { logprobs: true, top_logprobs: 3 } : {}),
  };
  return { ...body, ...furtherOf(form.further) };
}

function furtherOf(text) {
  if (!text.trim()) return {};
  let fields;
  try {
    fields = JSON.parse(text);
  } catch (error) {
    throw new Error(`Further fields: this is no JSON: ${error.message}`);
  }
  if (fields === null || typeof fields !== "object" || Array.isArray(fields)) throw new Error('Further fields: write an object, like {"top_p": 0.9}');
  return fields;
}

// Promises, priority and the client's key, as headers.
export function headersOf(form, clientKey) {
  const given = [["x-slo-ttft-ms", form.ttftMs], ["x-slo-tpot-ms", form.tpotMs], ["x-priority", form.priority], ["x-client-key", clientKey]];
  return Object.fromEntries(given.map(([name, text]) => [name, text.trim()]).filter(([, text]) => text));
}

export const emptyAnswer = (askedAt, promised) => ({ askedAt, promised, text: "", reasoning: "", tools: [], logprobs: [], finish: null, usage: null, firstAt: null, lastAt: null, pieces: 0, requestId: "" });

// The answer with one more chunk of the stream, which came at `now` (ms). Throws what the gateway says went wrong.
export function folded(answer, chunk, now) {
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices?.[0];
  if (!choice) return { ...answer, usage: chunk.usage ?? answer.usage };
  const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta ?? {};
  const hasToken = Boolean(content || reasoning || calls?.length || choice.logprobs?.content?.length);
  return {
    ...answer,
    text: answer.text + (content ?? ""),
    reasoning: answer.reasoning + (reasoning ?? ""),
    tools: (calls ?? []).reduce(withCall, answer.tools),
    logprobs: [...answer.logprobs, ...(choice.logprobs?.content ?? [])],
    finish: choice.finish_reason ?? answer.finish,
    usage: chunk.usage ?? answer.usage,
    pieces: answer.pieces + (hasToken ? 1 : 0),
    firstAt: answer.firstAt ?? (hasToken ? now : null),
    lastAt: hasToken ? now : answer.lastAt,
  };
}

function withCall(tools, call) {
  const before = tools[call.index] ?? { id: "", name: "", arguments: "" };
  const made = { id: call.id ?? before.id, name: before.name + (call.function?.name ?? ""), arguments: before.arguments + (call.function?.arguments ?? "") };
  return Object.assign([...tools], { [call.index]: made });
}

// TTFT and TPOT (seconds) as they came here; TPOT is null for one token.
export function measured({ askedAt, firstAt, lastAt, usage, pieces }) {
  const tokens = usage?.completion_tokens ?? pieces;
  return {
    ttftS: firstAt === null ? null : (firstAt - askedAt) / 1000,
    tpotS: firstAt === null || tokens < 2 ? null : (lastAt - firstAt) / 1000 / (tokens - 1),
    tokens,
  };
}

// What the request is promised (seconds): its own wishes, or else its service's promises.
export function promisedTo(form, service) {
  const own = (text, otherwise) => (Number(text) > 0 ? Number(text) / 1000 : otherwise);
  return { ttftS: own(form.ttftMs, service?.ttft_s ?? null), tpotS: own(form.tpotMs, service?.tpot_s ?? null) };
}

// The answer as the next request repeats it.
export const messageOf = ({ text, tools }) => ({
  role: "assistant",
  content: text || (tools.length ? null : ""),
  ...(tools.length ? { tool_calls: tools.map(({ id, name, arguments: given }) => ({ id, type: "function", function: { name, arguments: given } })) } : {}),
});

// The first call of a tool that nobody has answered; undefined: none.
export function openCall(messages) {
  const answered = new Set(messages.map((message) => message.tool_call_id));
  return messages.flatMap((message) => message.tool_calls ?? []).find(({ id }) => !answered.has(id));
}
