// The mesh as it is: hosts, gateways and engines, and requests on their way between them.

import { html, useEffect, useRef } from "../vendor/htm-preact.js";
import { Bar, Table, useStore } from "../parts.js";
import { inFlight, state, watchTravels } from "../store.js";
import { clock, count, ms, short } from "../words.js";

const TRAVEL_MS = { dispatch: 450, handover: 700, migration: 1400 };
const WORDS = { dispatch: "sent to", handover: "handed over to", migration: "migrated to" };
const MOST_DOTS = 40;

export function MeshView() {
  useStore();
  const stage = useRef(null);
  useTravels(stage);
  const engines = [...state.engines.values()];
  const hosts = [...new Set([...engines, ...state.gateways.values()].map((row) => row.host))].sort();
  return html`
    <h2>Mesh</h2>
    <${Summary} engines=${engines} />
    <div class="stage" ref=${stage}>
      ${hosts.map((host) => html`<${Host} key=${host} host=${host} engines=${engines.filter((row) => row.host === host)} />`)}
    </div>
    <section class="panel">
      <h3>Requests on their way</h3>
      <p class="key soft"><i></i>dispatch <i class="handover"></i>hand-over <i class="migration"></i>migration
        ${state.oneIn > 1 && html` · one request in ${state.oneIn} is shown`}</p>
      <${Table} caption="The last moves of requests" rows=${state.moves} keyOf=${(move) => `${move.id} ${move.at} ${move.to}`} empty="no request has moved since this page was opened"
        columns=${[
          { name: "time", cell: (move) => clock(move.at) },
          { name: "request", cell: (move) => html`<a class="mono" href=${`#request/${encodeURIComponent(move.id)}`}>${short(move.id)}</a>` },
          { name: "service", cell: (move) => move.service },
          { name: "from", cell: (move) => move.from },
          { name: "what", cell: (move) => html`<span class=${move.kind === "migration" ? "bad" : ""}>${WORDS[move.kind]}</span>` },
          { name: "to", cell: (move) => move.to },
        ]} />
    </section>`;
}

function Summary({ engines }) {
  const ready = engines.filter((row) => row.state === "ready").length;
  const ours = inFlight().length * state.oneIn;
  return html`<p class="soft">
    ${engines.length} engines, ${ready} ready · ${state.gateways.size} gateway${state.gateways.size === 1 ? "" : "s"} ·
    about ${ours} requests of this gateway in flight · policy ${[...state.gateways.values()][0]?.policy ?? "–"}
  </p>`;
}

function Host({ host, engines }) {
  const gateways = [...state.gateways.values()].filter((row) => row.host === host);
  const held = (state.rest.hosts ?? []).find((row) => row.id === host);
  return html`<section class="panel" aria-label=${`Host ${host}`}>
    <h3>${host} ${held?.problem && html`<small class="bad">${held.problem}</small>`}</h3>
    <div class="grid">
      ${gateways.map((row) => html`<${Gateway} key=${row.id} row=${row} />`)}
      ${engines.map((row) => html`<${Engine} key=${row.id} row=${row} />`)}
    </div>
  </section>`;
}

const Gateway = ({ row }) => html`<article class="engine" data-process=${row.id} aria-label=${`Gateway ${row.id}`}>
  <h4>${row.id} <small>gateway, <${State} row=${row} /></small></h4>
  <dl class="facts">
    <dt>in flight</dt><dd>${count(row.requests)}</dd>
    <dt>waiting</dt><dd>${count(row.waiting)}</dd>
    <dt>policy</dt><dd>${row.policy ?? "–"}</dd>
  </dl>
</article>`;

function Engine({ row }) {
  const broken = Object.entries(row.breakers ?? {});
  const isIll = row.error || broken.length > 0 || !["ready", "starting", "standby", "draining"].includes(row.state);
  return html`<article class=${`engine ${row.role} ${isIll ? "ill" : ""}`} data-process=${row.id} aria-label=${`Engine ${row.id}`}>
    <h4>${row.id} <small>${row.role}, <${State} row=${row} /></small></h4>
    ${row.services.map((service) => html`<${Service} key=${service.name} service=${service} engine=${row.id} />`)}
    <dl class="facts">
      <dt>running</dt><dd>${count(row.running)}${row.max_running ? ` of ${row.max_running}` : ""}</dd>
      <dt>waiting prefills</dt><dd>${count(row.waiting)}</dd>
      <dt>prefill backlog</dt><dd>${ms(row.prefill_backlog_s)}</dd>
      <dt>slack of decodes</dt><dd class=${row.slack_s < 0 ? "bad" : ""}>${ms(row.slack_s)}</dd>
      <dt>migrations</dt><dd>${count(row.migrations)}${row.migrating_out ? `, ${row.migrating_out} now` : ""}</dd>
      ${row.restarts ? html`<dt>restarts</dt><dd class="warn">${row.restarts}</dd>` : null}
      ${row.loading?.length ? html`<dt>loading</dt><dd>${row.loading.join(", ")}</dd>` : null}
    </dl>
    ${broken.map(([gateway, is]) => html`<p key=${gateway} class="bad">breaker ${is} in ${gateway}</p>`)}
    ${row.error && html`<p class="bad">${row.error}</p>`}
  </article>`;
}

function Service({ service, engine }) {
  if (service.num_blocks === undefined) return html`<div class="soft">${service.name}</div>`;
  const used = service.num_blocks ? 1 - service.free_blocks / service.num_blocks : 0;
  return html`<div>
    <span class="soft">${service.name}: KV ${Math.round(100 * used)} % of ${count(service.num_blocks)} blocks</span>
    <${Bar} part=${used} label=${`KV in use, ${service.name} on ${engine}`} />
  </div>`;
}

const State = ({ row }) => html`<span class=${row.state === "ready" ? "good" : "warn"}>${row.state}</span>`;

// Draws each move as a dot that goes from one process to another.
function useTravels(stage) {
  useEffect(() => {
    const still = matchMedia("(prefers-reduced-motion: reduce)");
    return watchTravels((move) => {
      if (!still.matches && !document.hidden && stage.current) draw(stage.current, move);
    });
  }, []);
}

function draw(stage, move) {
  const [from, to] = [move.from, move.to].map((id) => middle(stage, id));
  if (!from || !to || stage.querySelectorAll(".dot").length >= MOST_DOTS) return;
  const dot = document.createElement("div");
  dot.className = `dot ${move.kind}`;
  stage.append(dot);
  const at = ({ x, y }) => ({ transform: `translate(${x}px, ${y}px)` });
  const going = dot.animate([at(from), at(to)], { duration: TRAVEL_MS[move.kind], easing: "ease-in-out" });
  going.finished.catch(() => {}).finally(() => dot.remove());
}

function middle(stage, process) {
  const card = stage.querySelector(`[data-process="${CSS.escape(process)}"]`);
  if (!card) return null;
  const [box, ground] = [card.getBoundingClientRect(), stage.getBoundingClientRect()];
  return { x: box.left - ground.left + box.width / 2, y: box.top - ground.top + box.height / 2 };
}
