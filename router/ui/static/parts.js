// Parts that several views are made of.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { versionNow, watch } from "./store.js";
import { clock } from "./words.js";

// Renders again when the store has changed.
export function useStore() {
  const [, render] = useState(versionNow());
  const drawn = versionNow();
  useEffect(() => {
    const draw = () => render(versionNow());
    if (versionNow() !== drawn) draw(); // an effect begins after the frame: what came in between was told to nobody
    return watch(draw);
  }, []);
}

export const Bar = ({ part, label }) => html`
  <div class="bar" role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(100 * part)}>
    <i style=${{ width: `${Math.min(100, 100 * part)}%` }}></i>
  </div>`;

// A table from columns [{name, cell, num}] and rows. `caption` is for those who hear it.
export const Table = ({ caption, columns, rows, keyOf, empty = "nothing yet" }) => html`
  <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead><tr>${columns.map(({ name, num }) => html`<th scope="col" class=${num ? "num" : ""}>${name}</th>`)}</tr></thead>
      <tbody>
        ${rows.map((row, index) => html`<tr key=${keyOf ? keyOf(row) : index}>${columns.map(({ cell, num }) => html`<td class=${num ? "num" : ""}>${cell(row)}</td>`)}</tr>`)}
        ${rows.length ? null : html`<tr><td colspan=${columns.length} class="soft">${empty}</td></tr>`}
      </tbody>
    </table>
  </div>`;

export const Field = ({ label, id, children }) => html`<div class="field"><label for=${id}>${label}</label>${children}</div>`;

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A plot of `data` (uPlot's columns). `series`: [{label, colour, dash, points}]; `summary`: the same in words.
export function Chart({ title, data, series, summary, xTime = true, xLabel, yLabel, height = 220, yRange }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shape = JSON.stringify([title, series, xTime]);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf({ series, xTime, xLabel, yLabel, height, yRange }, box.current.clientWidth || 320), data, box.current);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height }));
    resized.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", make);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<figure class="panel" aria-label=${title}>
    <h3>${title}</h3>
    <div class="chart" ref=${box} role="img" aria-label=${`${title}. ${summary ?? ""}`}></div>
    ${summary ? html`<p class="soft">${summary}</p>` : null}
  </figure>`;
}

// Times as everywhere on the page, and at least a second apart.
const CLOCK = { space: 80, incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 86400], values: (_, places) => places.map(clock) };

const lastMinute = (_, low, high) => (low === null ? [null, null] : [Math.min(low, high - 60), high]);

function optionsOf({ series, xTime, xLabel, yLabel, height, yRange }, width) {
  const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") } };
  return {
    width,
    height,
    padding: [null, xTime ? 32 : null, null, null], // room for half of the last time
    scales: { x: xTime ? { time: true, range: lastMinute } : { time: false }, y: { range: yRange ?? ((_, low, high) => [0, high > 0 ? high * 1.1 : 1]) } },
    axes: [{ ...axis, label: xLabel, ...(xTime ? CLOCK : {}) }, { ...axis, label: yLabel, size: 62 }],
    cursor: { drag: { x: false, y: false } },
    series: [
      xTime ? { label: "time", value: (_, at) => (at === null || at === undefined ? "–" : clock(at)) } : {},
      ...series.map(({ label, colour, dash, points }) => ({
        label,
        stroke: ink(colour),
        width: points ? 0 : 2,
        dash,
        spanGaps: true,
        paths: points ? () => null : undefined,
        points: points ? { show: true, size: 6, fill: ink(colour), stroke: ink(colour) } : { show: false },
        value: (_, value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString()),
      })),
    ],
  };
}
