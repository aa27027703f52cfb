// A playground: messages, promises and options to one service, the answer as it streams, and how its promise was kept.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { headers, refusalOf } from "../ask.js";
import { bodyOf, emptyAnswer, folded, headersOf, measured, messageOf, openCall, promisedTo } from "../chat.js";
import { events } from "../events.js";
import { Field, Table, useStore } from "../parts.js";
import { state } from "../store.js";
import { count, ms } from "../words.js";

const ELSEWHERE = "This gateway hands nothing on from here: it listens for other machines, and asks them for no key.";
const STORED = "meshserve-client-key";
const EMPTY = { service: "", system: "", ttftMs: "", tpotMs: "", priority: "", seed: "", temperature: "", maxTokens: "", logprobs: false, further: "" };

// What was said and chosen, while other views are shown.
const kept = { form: EMPTY, turns: [], key: sessionStorage.getItem(STORED) ?? "" };

export function ChatView() {
  useStore();
  const [, render] = useState(0);
  const keep = (changes) => (Object.assign(kept, changes), render((times) => times + 1));
  const [problem, setProblem] = useState(null);
  const [answer, setAnswer] = useState(null);
  const running = useRef(null);
  useEffect(() => () => running.current?.abort(), []);
  const services = state.hello?.services ?? [];
  const form = { ...kept.form, service: kept.form.service || services[0]?.name || "" };
  if (!services.length) return html`<h2>Chat</h2><p class="soft">Waiting for the gateway.</p>`;

  const send = async (message) => {
    const abort = (running.current = new AbortController());
    const turns = [...kept.turns, { message }];
    const promised = promisedTo(form, services.find(({ name }) => name === form.service));
    keep({ turns });
    setProblem(null);
    let shown = emptyAnswer(performance.now(), promised);
    const show = (next) => setAnswer((shown = next));
    try {
      await stream(form, turns.map((turn) => turn.message), abort.signal, () => shown, show);
    } catch (error) {
      if (error.name !== "AbortError") setProblem(error);
      else show({ ...shown, finish: "stopped here" });
    }
    running.current = null;
    setAnswer(null);
    if (shown.pieces || shown.finish) keep({ turns: [...turns, { message: messageOf(shown), answer: shown }] });
    else keep({ turns: kept.turns.filter((turn) => turn.message !== message), draft: { text: message.content } });
  };
  const set = (field) => (event) => keep({ form: { ...form, [field]: event.target.type === "checkbox" ? event.target.checked : event.target.value } });
  const needsKey = problem?.status === 401 || problem?.status === 403;
  return html`
    <h2>Chat</h2>
    <div class="chat">
      <section class="panel talk" aria-label="Messages">
        ${kept.turns.length === 0 && !answer && html`<p class="soft">Ask ${form.service} something. Your request takes the way of all others: the same limits, the same policy, the same engines.</p>`}
        ${kept.turns.map((turn, index) => html`<${Turn} key=${index} turn=${turn} />`)}
        ${answer && html`<${Turn} turn=${{ message: messageOf(answer), answer }} isRunning />`}
        ${problem && html`<p class="note bad" role="alert" id="chat-problem">${problem.message}</p>`}
        ${(needsKey || kept.key) && html`<${ClientKey} />`}
        <${Composer} isRunning=${answer !== null} send=${send} stop=${() => running.current?.abort()} clear=${() => (keep({ turns: [] }), setProblem(null))} />
      </section>
      <${Options} form=${form} set=${set} services=${services} />
    </div>`;
}

async function stream(form, messages, signal, last, show) {
  const body = JSON.stringify(bodyOf(form, messages));
  show(last());
  const response = await reach({ method: "POST", body, signal, headers: headers({ "content-type": "application/json", ...headersOf(form, kept.key) }) });
  if (!response.ok) throw elsewhere(await refusalOf(response));
  show({ ...last(), requestId: response.headers.get("x-request-id") ?? "" });
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return show(whole(last(), await response.json()));
  for await (const { data } of events(response.body)) if (data !== "[DONE]") show(folded(last(), JSON.parse(data), performance.now()));
}

// Further fields may ask for an answer in one piece.
const whole = (answer, { choices, usage }) => folded({ ...answer, usage }, { choices: [{ ...choices[0], delta: withIndices(choices[0].message) }] }, performance.now());
const withIndices = (message) => ({ ...message, tool_calls: message.tool_calls?.map((call, index) => ({ ...call, index })) });

// Where the page may only show, nothing is there to take what is asked.
const elsewhere = (refusal) => (refusal.message.startsWith("Unknown path") ? new Error(ELSEWHERE) : refusal);

async function reach(options) {
  try {
    return await fetch("/mesh/chat", options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The gateway does not answer");
  }
}

// --- what was said ---------------------------------------------------------------------------------------------------

const NAMES = { user: "You", tool: "Tool", assistant: "Answer" };

function Turn({ turn: { message, answer }, isRunning }) {
  return html`<article class=${`turn ${message.role}`} aria-label=${NAMES[message.role]} aria-busy=${Boolean(isRunning)}>
    <h3>${NAMES[message.role]}</h3>
    ${answer?.reasoning && html`<details><summary>Reasoning</summary><p class="said">${answer.reasoning}</p></details>`}
    ${answer?.logprobs.length ? html`<${Likely} tokens=${answer.logprobs} />` : html`<p class="said">${message.content}</p>`}
    ${(answer?.tools ?? []).map((call) => html`<pre key=${call.id} class="mono" tabindex="0">${call.name}(${call.arguments})</pre>`)}
    ${answer && !isRunning && html`<${Kept} answer=${answer} />`}
  </article>`;
}

// The answer token by token: how likely each one was is told where the pointer is, and in the table.
function Likely({ tokens }) {
  const words = ({ token, logprob }) => `${JSON.stringify(token)} ${share(logprob)}`;
  return html`
    <p class="said">${tokens.map((one, index) => html`<span key=${index} class=${`token ${doubt(one.logprob)}`} title=${[one, ...(one.top_logprobs ?? []).filter(({ token }) => token !== one.token)].map(words).join("\n")}>${one.token}</span>`)}</p>
    <details><summary>Log-probabilities of ${count(tokens.length)} tokens</summary>
      <${Table} caption="Log-probabilities" rows=${tokens} columns=${[
        { name: "token", cell: (one) => html`<span class="mono">${JSON.stringify(one.token)}</span>` },
        { name: "logprob", num: true, cell: (one) => one.logprob.toFixed(3) },
        { name: "likely", num: true, cell: (one) => share(one.logprob) },
        { name: "instead", cell: (one) => html`<span class="mono">${(one.top_logprobs ?? []).filter(({ token }) => token !== one.token).map(words).join(", ")}</span>` },
      ]} /></details>`;
}

const share = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
const doubt = (logprob) => (logprob > Math.log(0.5) ? "" : logprob > Math.log(0.1) ? "unsure" : "unlikely");

function Kept({ answer }) {
  const { ttftS, tpotS, tokens } = measured(answer);
  const of = (name, took, promised) => took !== null && html`<span>${name} <b class=${promised === null || took <= promised ? "good" : "bad"}>${ms(took)}</b>${promised === null ? "" : ` of ${ms(promised)} promised`}</span>`;
  return html`<p class="soft kept">
    ${of("TTFT", ttftS, answer.promised.ttftS)} ${of("TPOT", tpotS, answer.promised.tpotS)}
    <span>${count(tokens)} tokens${answer.usage ? ` after ${count(answer.usage.prompt_tokens)}` : ""}</span>
    ${answer.finish && html`<span>${answer.finish}</span>`}
    ${answer.requestId && html`<a href=${`#request/${encodeURIComponent(answer.requestId)}`}>what happened to it</a>`}
  </p>`;
}

// --- what is asked ---------------------------------------------------------------------------------------------------

function Composer({ isRunning, send, stop, clear }) {
  const [text, setText] = useState("");
  useEffect(() => {
    if (kept.draft) setText(kept.draft.text);
    kept.draft = null;
  }, [kept.draft]);
  const call = openCall(kept.turns.map((turn) => turn.message));
  const submit = (event) => {
    event.preventDefault();
    if (isRunning || !text.trim()) return;
    send(call ? { role: "tool", tool_call_id: call.id, content: text } : { role: "user", content: text });
    setText("");
  };
  const onKeyDown = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event);
  return html`<form onSubmit=${submit}>
    <${Field} label=${call ? `What ${call.function.name} returns` : "Message"} id="chat-message">
      <textarea id="chat-message" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown}></textarea><//>
    <div class="row">
      ${isRunning ? html`<button type="button" id="chat-stop" onClick=${stop}>Stop</button>` : html`<button class="main" id="chat-send" disabled=${!text.trim()}>Send</button>`}
      ${!isRunning && kept.turns.length > 0 && html`<button type="button" id="chat-clear" onClick=${clear}>Begin again</button>`}
      <span class="soft">Enter sends, Shift+Enter begins a line</span>
    </div>
  </form>`;
}

function ClientKey() {
  const [text, set] = useState(kept.key);
  const put = (event) => {
    set(event.target.value);
    kept.key = event.target.value.trim();
    if (kept.key) sessionStorage.setItem(STORED, kept.key);
    else sessionStorage.removeItem(STORED);
  };
  return html`<${Field} label="A client's key, made with mesh keys add; it stays in this tab" id="chat-key">
    <input id="chat-key" type="password" autocomplete="off" value=${text} onInput=${put} /><//>`;
}

function Options({ form, set, services }) {
  const service = services.find(({ name }) => name === form.service);
  const text = (id, label, field, hint = "") => html`<${Field} label=${label} id=${id}><input id=${id} inputmode="decimal" autocomplete="off" placeholder=${hint} value=${form[field]} onInput=${set(field)} /><//>`;
  return html`<aside class="panel options" aria-label="Options">
    <${Field} label="Service" id="chat-service"><select id="chat-service" value=${form.service} onChange=${set("service")}>
      ${services.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}</select><//>
    <${Field} label="System prompt" id="chat-system"><textarea id="chat-system" rows="2" value=${form.system} onInput=${set("system")}></textarea><//>
    <div class="pair">
      ${text("chat-ttft", "TTFT promise, ms", "ttftMs", service ? String(1000 * service.ttft_s) : "")}
      ${text("chat-tpot", "TPOT promise, ms", "tpotMs", service ? String(1000 * service.tpot_s) : "")}
      ${text("chat-priority", "Priority", "priority")}
      ${text("chat-seed", "Seed", "seed")}
      ${text("chat-temperature", "Temperature", "temperature")}
      ${text("chat-max-tokens", "Most tokens", "maxTokens")}
    </div>
    <label class="choice"><input id="chat-logprobs" type="checkbox" checked=${form.logprobs} onChange=${set("logprobs")} /> log-probabilities</label>
    <${Field} label="Further fields, as JSON (tools, stop, top_p, ...)" id="chat-further">
      <textarea id="chat-further" class="mono" rows="3" spellcheck=${false} value=${form.further} onInput=${set("further")}></textarea><//>
  </aside>`;
}
