// Placement: which engine holds which service, what the placement daemon makes of it, and what an operator may change.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { ask } from "../ask.js";
import { useOrders } from "../confirm.js";
import { Bar, Field, Table, useStore } from "../parts.js";
import { changeInWords, gainInWords, history, onlyHere, policyInWords, rowsOfEngines, rowsOfServices, valueOf } from "../plan.js";
import { state } from "../store.js";
import { ago, clock, count, ms } from "../words.js";

const percent = (part) => (part === null || part === undefined ? "–" : `${(100 * part).toFixed(1)} %`);
const now = () => Date.now() / 1000;

export function PlacementView() {
  useStore();
  const orders = useOrders();
  const [known, refusal] = usePolicies();
  const order = known ? orders.ask : null;
  const status = state.placement;
  if (!state.hello) return html`<h2>Placement</h2><p class="soft">Waiting for the gateway.</p>`;
  return html`
    <h2>Placement</h2>
    ${orders.view}
    <${Daemon} status=${status} row=${state.rest.placement ?? null} />
    <${Engines} decision=${status?.decision ?? null} order=${order} />
    ${status?.decision && html`<${Forecasts} decision=${status.decision} made=${status.made} />`}
    ${status?.pools.length > 0 && html`<${Pools} pools=${status.pools} />`}
    ${status && html`<${History} status=${status} />`}
    ${order && html`<${Services} order=${order} />`}
    <${Policy} known=${known} order=${order} />
    ${refusal && html`<p class="note">${refusal}</p>`}`;
}

// [the policies that there are, why there are none]: a gateway that takes no orders has no such path.
function usePolicies() {
  const [found, set] = useState([null, ""]);
  const refuse = (error) => set([null, error.status === 404 ? "This gateway takes no orders over HTTP: its page is switched off, or nothing would say who gives them. The commands mesh drain, mesh load and mesh policy work." : error.message]);
  useEffect(() => void ask("/mesh/policies").then((known) => set([known, ""]), refuse), []);
  return found;
}

// --- the daemon ----------------------------------------------------------------------------------------------------

function Daemon({ status, row }) {
  if (row === null) return html`<p class="note">This mesh has no placement daemon, so engines hold what its topology or an operator gave them; a table [placement] in the topology starts one.</p>`;
  if (status === null) return html`<p class="note">The placement daemon ${row.id} has said nothing yet; it is ${row.state}.</p>`;
  const { decision } = status;
  return html`<section class="panel" aria-label="The placement daemon">
    <h3>${row.id} <small class="soft">${status.mode === "apply" ? "applies plans" : `${status.mode}: it changes nothing by itself`}</small></h3>
    ${row.state !== "ready" && html`<p class="bad">It is ${row.state}; this is what it said last.</p>`}
    <dl class="facts daemon">
      <dt>plan in force</dt><dd>${status.plan || "none since the engines started"}</dd>
      <dt>doing</dt><dd>${status.doing}</dd>
      <dt>next decision</dt><dd>${status.next_decision_s > 0 ? `in ${Math.ceil(status.next_decision_s)} s` : "is due"}</dd>
      <dt>plans carried out</dt><dd>${count(status.changes_total)}${status.changes_failed_total ? html`, <span class="bad">${count(status.changes_failed_total)} failed</span>` : ""}</dd>
    </dl>
    ${decision && html`<p class="verdict"><b>${decision.verdict}</b>: ${decision.reason}. <span class="soft">${gainInWords(decision)} Interval ${decision.interval}, ${ago(status.decision_age_s)}.</span></p>`}
    ${!decision && html`<p class="soft">It has decided nothing yet.</p>`}
    ${decision?.homeless.map((line) => html`<p key=${line} class="bad">${line}</p>`)}
    ${status.error && html`<p class="bad">${status.error}</p>`}
    ${status.mode !== "apply" && decision?.verdict === "replace" && html`<p class="soft"><code>mesh plan apply</code> carries it out.</p>`}
  </section>`;
}

// --- engines -------------------------------------------------------------------------------------------------------

function Engines({ decision, order }) {
  const rows = rowsOfEngines([...state.engines.values()], decision);
  const isFound = rows.some(({ found }) => found);
  return html`<section class="panel"><h3>Which engine holds what</h3>
    <${Table} caption="Engines and their services" rows=${rows} keyOf=${(row) => row.id}
      columns=${[
        { name: "engine", cell: (row) => html`<b>${row.id}</b>` },
        { name: "state", cell: (row) => html`<span class=${row.state === "ready" ? "good" : "warn"}>${row.state}</span>` },
        { name: "services", cell: (row) => row.held.join(", ") || "none" },
        ...(order ? [{ name: "do", cell: (row) => html`<${DrainButton} row=${row} order=${order} />` }] : []),
        { name: "role", cell: (row) => row.role },
        { name: "on their way", cell: (row) => [...row.loading.map((name) => `loading ${name}`), ...Object.entries(row.failed_loads ?? {}).map(([name, why]) => `${name} failed: ${why}`)].join(", ") || "–" },
        { name: "running", num: true, cell: (row) => count(row.running) },
        ...(isFound ? [{ name: "the daemon found", cell: (row) => (row.change ? html`<b class="warn">${changeInWords(row.change)}</b>` : row.found ? "as it is" : "–") }] : []),
      ]} /></section>`;
}

function DrainButton({ row, order }) {
  const path = `/mesh/engines/${encodeURIComponent(row.id)}/drain`;
  const undo = () =>
    order({ title: `Let ${row.id} serve again?`, text: "It takes new requests from then on.", button: "Let it serve", path, body: { undo: true }, done: () => `${row.id} was told to serve again.` });
  const drain = () => {
    const lost = onlyHere([...state.engines.values()], row);
    const warning = lost.length ? ` No other engine that is ready holds ${lost.join(", ")}: its requests will wait or be refused.` : "";
    order({ title: `Drain ${row.id}?`, text: `It takes nothing new, and the ${count(row.running)} requests that run there move to other engines, or end there.${warning}`, button: "Drain it", path, body: { undo: false }, done: () => `${row.id} was told to drain.` });
  };
  if (row.state === "draining") return html`<button type="button" onClick=${undo}>Undo drain <span class="hidden">of ${row.id} </span>…</button>`;
  return row.state === "ready" ? html`<button type="button" onClick=${drain}>Drain <span class="hidden">${row.id} </span>…</button>` : null;
}

function Services({ order }) {
  const engines = [...state.engines.values()].filter((row) => row.running !== null);
  const services = (state.hello?.services ?? []).map(({ name }) => name);
  const [chosen, choose] = useState({ engine: "", service: "" });
  const engine = engines.find(({ id }) => id === chosen.engine) ?? engines[0];
  const service = services.includes(chosen.service) ? chosen.service : services[0];
  if (!engine || !service) return null;
  const isHeld = engine.services.some(({ name }) => name === service);
  const daemon = state.placement?.mode === "apply" ? " The placement daemon may change it again." : "";
  const path = (what) => `/mesh/engines/${encodeURIComponent(engine.id)}/${what}`;
  const load = () =>
    order({ title: `Load ${service} on ${engine.id}?`, text: `The engine serves it, too, once its weights are there.${daemon}`, button: "Load it", path: path("load"), body: { service }, done: ({ done }) => (done ? `${engine.id} serves ${service} already.` : `${engine.id} was told to load ${service}.`) });
  const unload = () => {
    const isLast = onlyHere(engines, engine).includes(service);
    const warning = isLast ? ` It is the only ready engine that holds ${service}: nobody serves it then.` : "";
    order({ title: `Take ${service} from ${engine.id}?`, text: `Its requests move to other engines, or end there.${warning}${daemon}`, button: "Take it away", path: path("unload"), body: { service, last: isLast }, done: ({ done }) => (done ? `${engine.id} does not serve ${service}.` : `${engine.id} was told to let go of ${service}.`) });
  };
  return html`<section class="panel"><h3>Move a service</h3>
    <div class="row">
      <${Field} label="Engine" id="move-engine"><select id="move-engine" value=${engine.id} onChange=${(event) => choose({ engine: event.target.value, service })}>
        ${engines.map(({ id }) => html`<option key=${id} value=${id}>${id}</option>`)}</select><//>
      <${Field} label="Service to move" id="move-service"><select id="move-service" value=${service} onChange=${(event) => choose({ engine: engine.id, service: event.target.value })}>
        ${services.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select><//>
      <button type="button" disabled=${isHeld} onClick=${load}>Load it …</button>
      <button type="button" disabled=${!isHeld} onClick=${unload}>Take it away …</button>
    </div></section>`;
}

// --- forecasts, pools, history -------------------------------------------------------------------------------------

const Share = ({ part, label }) => html`${percent(part)}${part !== null && part !== undefined && html`<${Bar} part=${part} label=${label} />`}`;

function Forecasts({ decision, made }) {
  const rows = rowsOfServices(decision, made);
  const share = (name, pick, words) => ({ name, num: true, cell: (row) => html`<${Share} part=${pick(row)} label=${`${row.name}: requests in time, ${words}`} />` });
  return html`<section class="panel"><h3>Requests in time, by service <small class="soft">of interval ${decision.interval}, ${Math.round(decision.interval_s)} s</small></h3>
    <${Table} caption="Forecasts by service" rows=${rows} keyOf=${(row) => row.name} empty="nobody asked for anything"
      columns=${[
        { name: "service", cell: (row) => html`<b>${row.name}</b>` },
        { name: "requests a second", num: true, cell: (row) => row.rate.toFixed(2) },
        { name: "prompt", num: true, cell: (row) => `${Math.round(row.num_input[0])} ± ${Math.round(row.num_input[1])}` },
        { name: "answer", num: true, cell: (row) => `${Math.round(row.num_output[0])} ± ${Math.round(row.num_output[1])}` },
        share("achieved", (row) => row.achieved, "as it was"),
        share("predicted", (row) => row.predicted, "predicted with the plan in force"),
        share("with what was found", (row) => row.proposed, "predicted with what was found"),
        ...(made ? [{ name: "plan was made for", num: true, cell: (row) => (row.before ? `${row.before.rate.toFixed(2)}/s, ${percent(row.before.proposed)}` : "–") }] : []),
      ]} /></section>`;
}

const Pools = ({ pools }) => html`<section class="panel"><h3>Engines that are scaled</h3>
  <${Table} caption="Pools of engines" rows=${pools} keyOf=${(pool) => pool.name}
    columns=${[
      { name: "pool", cell: (pool) => html`<b>${pool.name}</b>` },
      { name: "needed", num: true, cell: (pool) => pool.need.toFixed(2) },
      { name: "wanted", num: true, cell: (pool) => count(pool.num_wanted) },
      { name: "bounds", num: true, cell: (pool) => `${pool.least} to ${pool.most}` },
      { name: "problem", cell: (pool) => html`<span class="bad">${pool.problem}</span>` },
    ]} /></section>`;

function History({ status }) {
  const rows = history(state.decisions, status, now());
  const totals = Object.entries(status.decisions_total).map(([verdict, number]) => `${count(number)} ${verdict}`).join(", ");
  const score = (forecast) => (forecast ? `${percent(forecast.attainment)}, ${forecast.normalized_latency.toFixed(2)}` : "–");
  return html`<section class="panel"><h3>Decisions</h3>
    <p class="soft">Since it began: ${totals || "none"}. Below are those since this page was opened, the last one before, and the one that the plan in force comes from. Scores are the share in time and the normalised latency.</p>
    <${Table} caption="Decisions of the placement daemon" rows=${rows} keyOf=${(row) => row.interval} empty="none yet"
      columns=${[
        { name: "time", cell: (row) => clock(row.at) },
        { name: "interval", num: true, cell: (row) => count(row.interval) },
        { name: "verdict", cell: (row) => html`<b class=${row.verdict === "replace" ? "good" : ""}>${row.verdict}</b>${row.isInForce && ", in force"}` },
        { name: "why", cell: (row) => row.reason },
        { name: "achieved", num: true, cell: (row) => score(row.achieved) },
        { name: "predicted", num: true, cell: (row) => score(row.predicted) },
        { name: "found", num: true, cell: (row) => score(row.proposed) },
        { name: "loads", num: true, cell: (row) => count(row.num_loads) },
        { name: "search", num: true, cell: (row) => ms(row.search_s) },
      ]} /></section>`;
}

// --- the policy ----------------------------------------------------------------------------------------------------

function Policy({ known, order }) {
  const [name, choose] = useState("");
  const [typed, setTyped] = useState({});
  const gateways = [...state.gateways.values()].filter((row) => row.policy);
  const policy = known?.policies.find((one) => one.name === (name || known.runs.name));
  const send = (event) => {
    event.preventDefault();
    const parameters = Object.fromEntries(policy.parameters.filter((one) => (typed[one.name] ?? "") !== "").map((one) => [one.name, valueOf(typed[one.name])]));
    order({
      title: `Dispatch by ${policy.name}?`, button: "Switch", path: "/mesh/policy", body: { name: policy.name, parameters },
      text: `All gateways run ${policyInWords(policy.name, parameters)} from then on. What waits is decided anew; what was sent stays where it is.`,
      done: ({ runs }) => `This gateway runs ${policyInWords(runs.name, runs.parameters)}${gateways.length > 1 ? "; the others hear of it and follow" : ""}.`,
    });
  };
  return html`<section class="panel"><h3>Dispatch policy</h3>
    <ul class="plain">${gateways.map((row) => html`<li key=${row.id}><b>${row.id}</b> runs ${policyInWords(row.policy, row.policy_parameters)}${row.policy_version ? `, switch ${row.policy_version}` : ", as the topology says"}</li>`)}</ul>
    ${policy && html`<form onSubmit=${send}>
      <div class="row">
        <${Field} label="Policy" id="policy"><select id="policy" value=${policy.name} onChange=${(event) => (choose(event.target.value), setTyped({}))}>
          ${known.policies.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select><//>
        <button class="main">Switch …</button>
      </div>
      <p class="soft">${policy.about}.</p>
      <div class="parameters">
        ${policy.parameters.map((one) => html`<${Parameter} key=${`${policy.name} ${one.name}`} one=${one} value=${typed[one.name] ?? ""} set=${(text) => setTyped({ ...typed, [one.name]: text })} />`)}
      </div>
    </form>`}
  </section>`;
}

function Parameter({ one, value, set }) {
  const id = `parameter-${one.name}`;
  const usual = JSON.stringify(one.default);
  const words = one.allowed === "true or false" ? ["true", "false"] : /^[\w-]+( or [\w-]+)+$/.test(one.allowed) ? one.allowed.split(" or ") : null;
  const change = (event) => set(event.target.value);
  return html`<${Field} label=${one.name} id=${id}>
    ${words
      ? html`<select id=${id} aria-describedby=${`${id}-about`} value=${value} onChange=${change}><option value="">${`as usual: ${one.default}`}</option>${words.map((word) => html`<option key=${word} value=${word}>${word}</option>`)}</select>`
      : html`<input id=${id} aria-describedby=${`${id}-about`} autocomplete="off" maxlength="1024" placeholder=${usual} value=${value} onInput=${change} />`}
    <small id=${`${id}-about`} class="soft">${one.about}${one.about && ": "}${one.allowed}</small>
  <//>`;
}
