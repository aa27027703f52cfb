// Requests: the recent ones, and what happened to one of them and why.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { ask } from "../ask.js";
import { Course } from "../course.js";
import { Field, Table, useStore } from "../parts.js";
import { state } from "../store.js";
import { SHOWN, courseOf, isBad, isOver, merged, notesOf, rowOf, rowOfTold, rowsOfDecision, tell } from "../story.js";
import { clock, count, ms, short } from "../words.js";

const LISTED = 50;
const LIST_MS = 5000;
const ONE_MS = 1000;

export const RequestView = ({ further: [id] }) => (id ? html`<${Requested} id=${id} key=${id} />` : html`<${Recent} />`);

// Asks now and, while `goesOn` says so of the answer, again after `everyMs`. {answer, problem}: the last ones.
function useAsked(path, everyMs, goesOn) {
  const [asked, set] = useState({ answer: null, problem: "" });
  useEffect(() => {
    const abort = new AbortController();
    let timer = null;
    const look = async () => {
      const found = await ask(path, { signal: abort.signal }).then((answer) => ({ answer, at: Date.now() / 1000, problem: "" }), (error) => ({ problem: error.message, isGone: error.status === 404 }));
      if (abort.signal.aborted) return;
      set((before) => (found.answer ? found : { ...before, ...found }));
      if (!found.isGone && (found.problem || goesOn(found.answer))) timer = setTimeout(look, everyMs);
    };
    look();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path]);
  return asked;
}

// --- the list ------------------------------------------------------------------------------------------------------

function Recent() {
  useStore();
  const [service, setService] = useState("");
  const [shown, setShown] = useState("all");
  const { answer, at, problem } = useAsked(`/mesh/requests?limit=${LISTED}`, LIST_MS, () => true);
  const services = state.hello?.services ?? [];
  const promised = new Map(services.map((one) => [one.name, one]));
  const told = [...state.requests.values()].map((request) => rowOfTold(request, promised.get(request.service)));
  const explained = (answer?.requests ?? []).map((one) => rowOf(answer.gateway, one, at));
  const rows = merged(explained, told, Infinity).filter((row) => (!service || row.service === service) && SHOWN[shown].suits(row)).slice(0, LISTED);
  return html`
    <h2>Requests</h2>
    <div class="row panel">
      <${Finder} />
      <${Field} label="Service" id="of-service"><select id="of-service" value=${service} onChange=${(event) => setService(event.target.value)}>
        <option value="">all</option>${services.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}</select><//>
      <${Field} label="Show" id="shown"><select id="shown" value=${shown} onChange=${(event) => setShown(event.target.value)}>
        ${Object.entries(SHOWN).map(([name, { words }]) => html`<option key=${name} value=${name}>${words}</option>`)}</select><//>
    </div>
    ${problem && html`<p class="note bad" role="alert">${problem}</p>`}
    <section class="panel"><h3>The most recent ones of this gateway</h3>
      <${Table} caption="Recent requests" rows=${rows} keyOf=${(row) => row.id} empty=${answer ? "no such request" : "asking the gateway"}
        columns=${[
          { name: "arrived", cell: (row) => clock(row.arrivedAt) },
          { name: "request", cell: (row) => html`<a class="mono" href=${`#request/${encodeURIComponent(row.id)}`} title=${row.id}>${short(row.id)}</a>` },
          { name: "service", cell: (row) => row.service },
          { name: "state", cell: (row) => html`<${State} row=${row} />` },
          { name: "where", cell: (row) => row.where || "–" },
          { name: "moves", num: true, cell: (row) => row.migrations || "–" },
          { name: "prompt", num: true, cell: (row) => count(row.promptTokens) },
          { name: "tokens", num: true, cell: (row) => count(row.tokens) },
          { name: "TTFT", num: true, cell: (row) => ms(row.ttftS) },
          { name: "TPOT", num: true, cell: (row) => ms(row.tpotS) },
        ]} />
    </section>`;
}

const State = ({ row: { state: is, isLate } }) => html`<span class=${["failed", "rejected"].includes(is) ? "bad" : is === "cancelled" ? "warn" : ""}>${is}</span>${isLate && html`, <span class="bad">late</span>`}`;

function Finder() {
  const [text, set] = useState("");
  const find = (event) => {
    event.preventDefault();
    if (text.trim()) location.hash = `#request/${encodeURIComponent(text.trim())}`;
  };
  return html`<form class="row" onSubmit=${find} role="search" aria-label="Find a request">
    <${Field} label="Id of an answer, or its x-request-id" id="asked"><input id="asked" class="mono" autocomplete="off" spellcheck=${false} maxlength="512" value=${text} onInput=${(event) => set(event.target.value)} /><//>
    <button class="main">Explain</button>
  </form>`;
}

// --- one request ---------------------------------------------------------------------------------------------------

function Requested({ id }) {
  const heading = useRef(null);
  const { answer, at, problem, isGone } = useAsked(`/mesh/requests/${encodeURIComponent(id)}`, ONE_MS, ({ requests }) => !requests.every(isOver));
  useEffect(() => heading.current.focus(), []);
  return html`
    <p><a href="#request">← all requests</a></p>
    <h2 tabindex="-1" ref=${heading}>Request <span class="mono">${id}</span></h2>
    ${problem && html`<p class=${`note ${isGone ? "" : "bad"}`} role="alert">${problem}</p>`}
    ${isGone && html`<div class="panel"><${Finder} /></div>`}
    ${!answer && !problem && html`<p class="soft">Asking the gateway.</p>`}
    ${answer && !isGone && answer.requests.map((one, index) => html`<${Story} key=${`${one.id} ${answer.requests.length - index}`} gateway=${answer.gateway} one=${one} at=${at} isAlone=${answer.requests.length === 1} />`)}`;
}

function Story({ gateway, one, at, isAlone }) {
  const course = courseOf(gateway, one);
  return html`<article class="panel" aria-label=${`What happened to ${one.id}`}>
    ${!isAlone && html`<h3 class="mono">${one.id}</h3>`}
    <p>${one.service}, ${count(one.num_prompt_tokens)} prompt tokens${one.is_estimated ? " (estimated)" : ""}, at most ${count(one.max_tokens)} new ones, priority ${one.priority}.
      Promised: first token in ${ms(one.slo_ttft_s)}, then ${ms(one.slo_tpot_s)} a token.
      It arrived at ${gateway} at ${clock(at - one.age_s)}${isOver(one) ? "" : html` and <b>has not ended yet</b>`}.
      ${one.trace_id && html` Trace <span class="mono">${one.trace_id}</span>.`}</p>
    <${Course} course=${course} one=${one} />
    <h3>What happened</h3>
    ${one.num_forgotten > 0 && html`<p class="soft">${count(one.num_forgotten)} earlier events are not kept.</p>`}
    <ol class="events">
      ${one.events.map((event, index) => html`<li key=${index}>
        <span class="at">${ms(event.at_s)}</span> <span class=${isBad(event, one) ? "bad" : ""}>${tell(event, one)}</span>
        ${event.type === "decided" && html`<${Seen} decision=${event} />`}
      </li>`)}
    </ol>
  </article>`;
}

// What a decision saw of the engines, and why the others were not chosen.
function Seen({ decision }) {
  const rows = rowsOfDecision(decision);
  const number = (pick) => ({ engine }) => (engine ? pick(engine) : "–");
  return html`<details>
    <summary>${decision.policy}: ${rows.length ? "the engines at that moment, and why not the others" : "what it saw"}</summary>
    <p class="soft">${count(decision.num_tokens)} tokens to compute before the next one; first token promised within ${ms(Math.max(0, decision.deadline_s - decision.at_s))} from then.${decision.deadline_s < decision.at_s && " That is over."}</p>
    ${rows.length > 0 && html`<${Table} caption=${`Engines that the decision at ${ms(decision.at_s)} saw`} rows=${rows} keyOf=${(row) => row.id}
      columns=${[
        { name: "engine", cell: (row) => html`<b class=${row.part ? "good" : ""}>${row.id}</b>` },
        { name: "why (not)", cell: (row) => html`<span class=${`why ${row.part ? "good" : ""}`}>${row.part || row.why}</span>` },
        { name: "role", cell: number((engine) => engine.role) },
        { name: "backlog", num: true, cell: number((engine) => ms(engine.backlog_s)) },
        { name: "this prefill", num: true, cell: number((engine) => ms(engine.prefill_s)) },
        { name: "prefills", num: true, cell: number((engine) => count(engine.num_prefills)) },
        { name: "slack", num: true, cell: number((engine) => ms(engine.slack_s)) },
        { name: "running", num: true, cell: number((engine) => count(engine.num_running)) },
        { name: "KV in use", num: true, cell: number((engine) => `${Math.round(100 * engine.watermark)} %`) },
        { name: "tokens", num: true, cell: number((engine) => count(engine.num_tokens)) },
        { name: "cached", num: true, cell: number((engine) => count(engine.num_cached_tokens)) },
        { name: "heard", num: true, cell: number((engine) => `${ms(engine.status_age_s)} before`) },
      ]} />`}
    ${notesOf(decision).map((note) => html`<p key=${note} class="soft">${note}</p>`)}
    ${Object.keys(decision.numbers).length > 0 && html`<p class="soft">The rule’s numbers: ${Object.entries(decision.numbers).map(([name, value]) => numberInWords(name, value)).join(", ")}.</p>`}
  </details>`;
}

function numberInWords(name, value) {
  const words = name.replace(/_s$/, "").replaceAll("_", " ");
  if (value === null) return `${words} unlimited`;
  return `${words} ${name.endsWith("_s") ? ms(value) : count(Number(value.toFixed(3)))}`;
}
