// How requests would have fared with other policies or other numbers of engines: simulated, beside what happened.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { ask, headers, refusalOf } from "../ask.js";
import { events } from "../events.js";
import { Chart, Field, Table } from "../parts.js";
import { distributions, outcomesOf, overTime, percentile, questionOf, verdict } from "../what_if.js";
import { ago, count, ms } from "../words.js";

const RECORDING = "application/vnd.meshserve.recording+json"; // a type that no page of another site may send
const UNCHANGED = "unchanged";
const ELSEWHERE = "This gateway simulates for nobody: it listens for other machines, and asks them for no key.";
const COLOURS = 12;

export function WhatIfView() {
  const [choices, setChoices] = useState(null);
  const [problem, setProblem] = useState("");
  const [progress, setProgress] = useState(null);
  const [answer, setAnswer] = useState(null);
  const running = useRef(null);
  useEffect(() => {
    ask("/mesh/what-if").then(setChoices, (error) => setProblem(error.status === 404 ? ELSEWHERE : error.message));
    return () => running.current?.abort();
  }, []);
  const run = async (path, body) => {
    const abort = (running.current = new AbortController());
    setProblem("");
    setProgress({ part: 0, left: "" });
    try {
      setAnswer(await simulate(path, body, abort.signal, setProgress));
    } catch (error) {
      setProblem(error.name === "AbortError" ? "Stopped." : error.message);
    }
    running.current = null;
    setProgress(null);
  };
  return html`
    <h2>What if</h2>
    ${problem && html`<p class="note bad" role="alert" id="what-if-problem">${problem}</p>`}
    ${choices && html`<${Question} choices=${choices} isRunning=${progress !== null} run=${run} refuse=${setProblem} stop=${() => running.current?.abort()} />`}
    ${progress && html`<${Running} progress=${progress} />`}
    ${answer && html`<${Answer} answer=${answer} />`}`;
}

async function simulate(path, body, signal, tell) {
  const response = await reach(path, { method: "POST", body, signal, headers: headers({ "content-type": RECORDING }) });
  if (!response.ok) throw await refusalOf(response);
  for await (const { event, data } of events(response.body)) {
    const said = JSON.parse(data);
    if (event === "progress") tell(said);
    if (event === "error") throw new Error(said.message);
    if (event === "result") return said;
  }
  throw new Error("The gateway ended the simulation without a result");
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The gateway does not answer, or the file was changed after it was chosen: choose it again");
  }
}

const Running = ({ progress }) => html`<div class="panel" role="status">
  <label for="what-if-progress">Simulating, ${Math.round(100 * progress.part)} %${progress.left && `, ${progress.left} left`}</label>
  <progress class="what-if" id="what-if-progress" max="1" value=${progress.part}></progress>
</div>`;

// --- the question ----------------------------------------------------------------------------------------------------

function Question({ choices, isRunning, run, refuse, stop }) {
  const [source, setSource] = useState(choices.remembered ? "remembered" : "recording");
  const [file, setFile] = useState(null);
  const [policies, setPolicies] = useState([choices.policy]);
  const [further, setFurther] = useState("");
  const [deployments, setDeployments] = useState([]);
  const send = (event) => {
    event.preventDefault();
    if (source === "recording" && !file) return refuse("Choose a file first");
    if (source === "recording" && file.size > choices.max_bytes) return refuse(`${file.name} has ${count(file.size)} bytes; choose one of at most ${count(choices.max_bytes)}`);
    const wanted = [...policies, ...further.split(/[\s,]+/).filter(Boolean)];
    const engines = deployments.length ? [UNCHANGED, ...deployments] : [];
    run(questionOf({ source, policies: wanted, engines }), source === "recording" ? file : "{}");
  };
  const toggle = (name) => setPolicies(policies.includes(name) ? policies.filter((one) => one !== name) : [...policies, name]);
  return html`<form class="panel what-if" onSubmit=${send}>
    <fieldset>
      <legend>Requests</legend>
      <label class="choice"><input type="radio" name="source" value="remembered" checked=${source === "remembered"} disabled=${!choices.remembered} onChange=${() => setSource("remembered")} />
        ${choices.remembered ? `the ${count(choices.remembered)} that this gateway remembers of the last hour, the first one ${ago(choices.remembered_s)}` : "none that this gateway remembers of the last hour"}</label>
      <label class="choice"><input type="radio" name="source" value="recording" checked=${source === "recording"} onChange=${() => setSource("recording")} /> a recording</label>
      <${Field} label=${`File: a gateway's recording, records, or a trace (up to ${choices.max_bytes >> 20} MiB, ${count(choices.max_lines)} lines)`} id="what-if-file">
        <input id="what-if-file" type="file" accept=".jsonl,.json,.csv,.txt" onChange=${(event) => (setFile(event.target.files[0] ?? null), setSource("recording"))} /><//>
    </fieldset>
    <fieldset>
      <legend>Policies</legend>
      <div class="choices">${choices.policies.map((name) => html`<label class="choice" key=${name}>
        <input type="checkbox" name="policy" value=${name} checked=${policies.includes(name)} onChange=${() => toggle(name)} /> ${name}${name === choices.policy ? " (now)" : ""}</label>`)}</div>
      <${Field} label="With parameters, like tropical:watermark=0.8" id="what-if-policies">
        <input id="what-if-policies" autocomplete="off" spellcheck=${false} value=${further} onInput=${(event) => setFurther(event.target.value)} /><//>
    </fieldset>
    <${Engines} pools=${choices.pools} deployments=${deployments} set=${setDeployments} />
    <div class="row">
      <button class="main" id="what-if-run" disabled=${isRunning}>Simulate</button>
      ${isRunning && html`<button type="button" id="what-if-stop" onClick=${stop}>Stop</button>`}
    </div>
  </form>`;
}

function Engines({ pools, deployments, set }) {
  const [counts, setCounts] = useState(pools);
  const text = Object.entries(counts).filter(([pool, number]) => number !== pools[pool]).map(([pool, number]) => `${pool}=${number}`).join(",");
  const isNew = text !== "" && !deployments.includes(text);
  return html`<fieldset>
    <legend>Numbers of engines</legend>
    <div class="row">
      ${Object.entries(counts).map(([pool, number]) => html`<${Field} key=${pool} label=${`${pool} (now ${pools[pool]})`} id=${`what-if-${pool}`}>
        <input id=${`what-if-${pool}`} type="number" min="1" max="64" value=${number} onInput=${(event) => setCounts({ ...counts, [pool]: Number(event.target.value) })} /><//>`)}
      <button type="button" id="what-if-add" disabled=${!isNew} onClick=${() => set([...deployments, text])}>Try these, too</button>
    </div>
    <ul class="alternatives">
      <li>as they are</li>
      ${deployments.map((one) => html`<li key=${one}>${one} <button type="button" aria-label=${`Do not try ${one}`} onClick=${() => set(deployments.filter((other) => other !== one))}>×</button></li>`)}
    </ul>
  </fieldset>`;
}

// --- the answer ------------------------------------------------------------------------------------------------------

function Answer({ answer: { comparison, notes } }) {
  const outcomes = outcomesOf(comparison);
  const { best, isEnough, words } = verdict(comparison);
  const series = outcomes.map((outcome) => seriesOf(outcome, comparison));
  const curves = useCurves(comparison, outcomes);
  const promised = (seconds) => (seconds === null ? "Requests have promises of their own." : `Promised: ${ms(seconds)}.`);
  return html`<section aria-label="Result">
    <p class=${`note ${isEnough ? "well" : "bad"}`} id="what-if-verdict" role="status">${words}</p>
    <div class="grid wide">
      <${Chart} title="Requests that kept both promises (%), by arrival (s)" xTime=${false} yRange=${() => [0, 102]} data=${curves.kept} series=${series} summary=${`Best: ${best}.`} />
      <${Chart} title="Requests (%) whose TTFT is at most so many ms" xTime=${false} yRange=${() => [0, 102]} data=${curves.ttft} series=${series} summary=${promised(comparison.ttft_s)} />
      <${Chart} title="Requests (%) whose TPOT is at most so many ms" xTime=${false} yRange=${() => [0, 102]} data=${curves.tpot} series=${series} summary=${promised(comparison.tpot_s)} />
    </div>
    <${Outcomes} outcomes=${outcomes} best=${best} />
    ${notes.length > 0 && html`<details class="panel"><summary>What the simulation remarked</summary>${notes.map((note) => html`<p key=${note}>${note}</p>`)}</details>`}
  </section>`;
}

// Charts draw again when their data is another object, so it is made once an answer.
function useCurves(comparison, outcomes) {
  const kept = useRef({});
  if (kept.current.of !== comparison)
    kept.current = { of: comparison, kept: overTime(outcomes), ttft: distributions(outcomes, "ttft"), tpot: distributions(outcomes, "tpot") };
  return kept.current;
}

function seriesOf(outcome, { recorded, runs }) {
  if (outcome === recorded) return { label: outcome.policy, colour: "--soft", dash: [6, 4] };
  return { label: outcome.policy, colour: `--run-${runs.indexOf(outcome) % COLOURS}` };
}

function Outcomes({ outcomes, best }) {
  const share = (part) => `${(100 * part).toFixed(1)} %`;
  const rank = (name, field, rank) => ({ name, num: true, cell: (row) => ms(percentile(row[field], rank)) });
  return html`<section class="panel"><h3>Alternatives</h3>
    <${Table} caption="What each alternative came to" rows=${outcomes} keyOf=${(row) => row.policy}
      columns=${[
        { name: "alternative", cell: (row) => (row.policy === best ? html`<b>${row.policy} ★</b>` : row.policy) },
        { name: "both kept", num: true, cell: (row) => share(row.attainment) },
        { name: "TTFT kept", num: true, cell: (row) => share(row.ttft_attainment) },
        { name: "TPOT kept", num: true, cell: (row) => share(row.tpot_attainment) },
        { name: "goodput, req/s", num: true, cell: (row) => row.goodput.toFixed(2) },
        rank("TTFT P50", "ttft", 50), rank("TTFT P99", "ttft", 99), rank("TPOT P50", "tpot", 50), rank("TPOT P99", "tpot", 99),
        { name: "requests", num: true, cell: (row) => count(row.num_requests) },
        { name: "lost", num: true, cell: (row) => count(row.num_rejected + row.num_failed) },
      ]} />
    ${outcomes.filter((row) => row.first_failure).map((row) => html`<p key=${row.policy} class="bad">${row.policy}: ${row.first_failure}</p>`)}
  </section>`;
}
