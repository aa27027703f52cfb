// How promises are kept: attainment, goodput, TTFT and TPOT against their promises, and predictions against what came.

import { html, useState } from "../vendor/htm-preact.js";
import { Chart, Field, Table, useStore } from "../parts.js";
import { state } from "../store.js";
import { count, ms, share } from "../words.js";

const WINDOWS = [["1 minute", 60], ["5 minutes", 300], ["15 minutes", 900]];

export function PromisesView() {
  useStore();
  const [seconds, setSeconds] = useState(300);
  const services = state.hello?.services ?? [];
  const [chosen, choose] = useState("");
  const service = services.find(({ name }) => name === chosen) ?? services[0];
  const buckets = [...state.buckets.values()];
  const newest = Math.max(0, ...buckets.map(({ at }) => at));
  const recent = buckets.filter(({ at }) => at > newest - seconds);
  if (!service) return html`<h2>Promises</h2><p class="soft">Waiting for the gateway.</p>`;
  return html`
    <h2>Promises</h2>
    <div class="row panel">
      <${Field} label="Service" id="service"><select id="service" value=${service.name} onChange=${(event) => choose(event.target.value)}>
        ${services.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}</select><//>
      <${Field} label="Of the last" id="window"><select id="window" value=${seconds} onChange=${(event) => setSeconds(Number(event.target.value))}>
        ${WINDOWS.map(([name, value]) => html`<option key=${value} value=${value}>${name}</option>`)}</select><//>
      <p class="soft">Promised: first token in ${ms(service.ttft_s)}, then ${ms(service.tpot_s)} a token, for ${Math.round(100 * service.attainment)} % of requests. Of this gateway's requests.</p>
    </div>
    <${Tiles} service=${service} buckets=${recent.filter((bucket) => bucket.service === service.name)} seconds=${seconds} />
    <${Lines} service=${service} buckets=${recent.filter((bucket) => bucket.service === service.name)} />
    <${ByKey} buckets=${recent} />`;
}

const sum = (buckets, field) => buckets.reduce((total, bucket) => total + bucket[field], 0);

function Tiles({ service, buckets, seconds }) {
  const ended = sum(buckets, "ended");
  const kept = sum(buckets, "kept");
  const isKept = ended === 0 || kept / ended >= service.attainment;
  const span = Math.min(seconds, Math.max(state.bucketS, new Set(buckets.map(({ at }) => at)).size * state.bucketS));
  const tiles = [
    ["both promises kept", html`<b class=${isKept ? "good" : "bad"}>${share(kept, ended)}</b>`],
    ["TTFT kept", html`<b>${share(sum(buckets, "kept_ttft"), ended)}</b>`],
    ["TPOT kept", html`<b>${share(sum(buckets, "kept_tpot"), ended)}</b>`],
    ["goodput, requests a second", html`<b>${(kept / span).toFixed(2)}</b>`],
    ["requests ended", html`<b>${count(ended)}</b>`],
    ["not served", html`<b class=${sum(buckets, "not_served") ? "bad" : ""}>${count(sum(buckets, "not_served"))}</b>`],
  ];
  return html`<div class="grid tiles">${tiles.map(([name, value]) => html`<div key=${name} class="panel tile">${value}<span class="soft">${name}</span></div>`)}</div>`;
}

// One row of numbers for each bucket, all keys together: quantiles are the worst of any key.
function columnsOf(buckets) {
  const times = [...new Set(buckets.map(({ at }) => at))].sort((one, other) => one - other);
  if (times.at(-1) > Date.now() / 1000 - state.bucketS) times.pop(); // it still grows
  const at = (time) => buckets.filter((bucket) => bucket.at === time);
  const worst = (time, field, rank) => {
    const found = at(time).map((bucket) => bucket[field]?.[rank]).filter((value) => value !== undefined);
    return found.length ? Math.max(...found) : null;
  };
  const rate = (time) => sum(at(time), "kept") / state.bucketS;
  const attainment = (time) => (100 * sum(at(time), "kept")) / sum(at(time), "ended");
  return { times, worst, rate, attainment };
}

function Lines({ service, buckets }) {
  const { times, worst, rate, attainment } = columnsOf(buckets);
  const flat = (value) => times.map(() => value);
  const quantiles = (field, promised) => [
    times.map((time) => time),
    ...["p50", "p90", "p99"].map((rank) => times.map((time) => seconds(worst(time, field, rank)))),
    flat(1000 * promised),
  ];
  const series = [
    { label: "P50", colour: "--accent" }, { label: "P90", colour: "--prefill" }, { label: "P99", colour: "--decode" },
    { label: "promised", colour: "--bad", dash: [6, 4] },
  ];
  const last = (field) => (times.length ? `Latest: P50 ${ms(worst(times.at(-1), field, "p50"))}, P99 ${ms(worst(times.at(-1), field, "p99"))}.` : "No request has ended yet.");
  return html`<div class="grid wide">
    <${Chart} title="Time to first token (ms)" data=${quantiles("ttft_s", service.ttft_s)} series=${series} summary=${last("ttft_s")} />
    <${Chart} title="Time per token (ms)" data=${quantiles("tpot_s", service.tpot_s)} series=${series} summary=${last("tpot_s")} />
    <${Chart} title="Requests that kept both promises (%)" yRange=${() => [0, 102]}
      data=${[times, times.map(attainment), flat(100 * service.attainment)]}
      series=${[{ label: "kept", colour: "--good" }, { label: "promised", colour: "--bad", dash: [6, 4] }]} />
    <${Chart} title="Goodput (requests a second)" data=${[times, times.map(rate)]} series=${[{ label: "goodput", colour: "--accent" }]} />
    <${Predictions} service=${service} />
  </div>`;
}

const seconds = (value) => (value === null ? null : 1000 * value);

// Each first token: how long it was predicted to take from its dispatch, and how long it took.
function Predictions({ service }) {
  const pairs = state.predictions.filter((pair) => pair.service === service.name).sort((one, other) => one.predicted - other.predicted);
  const data = [pairs.map(({ predicted }) => 1000 * predicted), pairs.map(({ took }) => 1000 * took), pairs.map(({ predicted }) => 1000 * predicted)];
  const ratios = pairs.map(({ predicted, took }) => took / predicted).sort((one, other) => one - other);
  const summary = ratios.length ? `The median first token took ${ratios[Math.floor(ratios.length / 2)].toFixed(2)} times its prediction (${ratios.length} requests since this page was opened).` : "No first token since this page was opened.";
  return html`<${Chart} title="First tokens: predicted and actual (ms from dispatch)" data=${data} xTime=${false} xLabel="predicted" summary=${summary}
    series=${[{ label: "actual", colour: "--accent", points: true }, { label: "as predicted", colour: "--bad", dash: [6, 4] }]} />`;
}

function ByKey({ buckets }) {
  const groups = new Map();
  for (const bucket of buckets) {
    const name = `${bucket.service}\n${bucket.key}`;
    groups.set(name, [...(groups.get(name) ?? []), bucket]);
  }
  const rows = [...groups.values()].map((of) => ({
    service: of[0].service, key: of[0].key || "–", ended: sum(of, "ended"), kept: sum(of, "kept"), ttft: sum(of, "kept_ttft"), tpot: sum(of, "kept_tpot"), tokens: sum(of, "tokens"), notServed: sum(of, "not_served"),
  })).sort((one, other) => other.ended - one.ended);
  return html`<section class="panel"><h3>By service and key</h3>
    <${Table} caption="Promises by service and key" rows=${rows} keyOf=${(row) => `${row.service} ${row.key}`} empty="no request has ended in this time"
      columns=${[
        { name: "service", cell: (row) => row.service },
        { name: "key or address", cell: (row) => html`<span class="mono">${row.key}</span>` },
        { name: "ended", num: true, cell: (row) => count(row.ended) },
        { name: "both kept", num: true, cell: (row) => share(row.kept, row.ended) },
        { name: "TTFT kept", num: true, cell: (row) => share(row.ttft, row.ended) },
        { name: "TPOT kept", num: true, cell: (row) => share(row.tpot, row.ended) },
        { name: "not served", num: true, cell: (row) => count(row.notServed) },
        { name: "tokens", num: true, cell: (row) => count(row.tokens) },
      ]} /></section>`;
}
