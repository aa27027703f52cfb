// A request over time as a picture: a lane for the gateway and one for each engine that had it.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { PHASES, courseInWords, promisesOf, ticksOf } from "./story.js";
import { ms } from "./words.js";

const LANE = 62; // pixels of height: the lane's name, numbers of marks, the bar
const BAR = 20;
const LEFT = 4;
const RIGHT = 26; // for a mark at the very end
const FARTHEST = 2; // times its length: a promise that ends later would squeeze what happened

export function Course({ course, one }) {
  const [box, width] = useWidth();
  const promises = promisesOf(one).filter(({ at }) => at <= FARTHEST * course.ends);
  const longest = Math.max(course.ends, ...promises.map(({ at }) => at), 1e-6);
  const x = (at) => LEFT + (at / longest) * (width - LEFT - RIGHT);
  const height = course.lanes.length * LANE + 34 + 18 * promises.length;
  const foot = course.lanes.length * LANE + 6;
  return html`<div class="course" ref=${box}>
    <svg role="img" aria-label=${`From its arrival: ${courseInWords(course, one)}`} width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}>
      ${ticksOf(longest, width / 90).map((at) => html`<g key=${`tick ${at}`} class="tick">
        <line x1=${x(at)} x2=${x(at)} y1="0" y2=${foot} /><text x=${x(at)} y=${foot + 16} text-anchor=${at > 0 ? "middle" : "start"}>${ms(at)}</text></g>`)}
      ${course.lanes.map((lane, row) => html`<text key=${`lane ${lane}`} class="lane" x=${LEFT} y=${row * LANE + 12}>${lane}</text>`)}
      ${course.spans.map((span, index) => html`<${Span} key=${`span ${index}`} span=${span} from=${x(span.from)} to=${x(span.to)} y=${top(course, span.lane)} />`)}
      ${promises.map(({ at, words }, index) => html`<${Promised} key=${words} x=${x(at)} foot=${foot} y=${foot + 32 + 18 * index} words=${words} width=${width} />`)}
      ${apart(course.marks, x, width).map((mark, index) => html`<g key=${`mark ${index}`} class="mark">
        <line x1=${x(mark.at)} x2=${x(mark.at)} y1=${top(course, mark.lane) - 3} y2=${top(course, mark.lane) + BAR + 3} />
        <circle cx=${mark.x} cy=${top(course, mark.lane) - 10} r="8" /><text x=${mark.x} y=${top(course, mark.lane) - 6}>${mark.number}</text></g>`)}
    </svg>
    <p class="phases soft">${Object.keys(PHASES).filter((phase) => course.spans.some((span) => span.phase === phase)).map((phase) => html`<span key=${phase}><i class=${phase}></i>${PHASES[phase]}</span>`)}
      ${course.marks.length > 0 && html`<span>${course.marks.map(({ number, words }) => `${number} ${words}`).join(", ")}</span>`}</p>
  </div>`;
}

const top = (course, lane) => course.lanes.indexOf(lane) * LANE + 36;

function Span({ span, from, to, y }) {
  const words = PHASES[span.phase];
  const width = Math.max(2, to - from);
  return html`<g class=${`span ${span.phase}`}>
    <title>${`${words}: ${ms(span.to - span.from)}`}</title>
    <rect x=${from} y=${y} width=${width} height=${BAR} rx="3" />
    ${width > 7.2 * words.length + 10 && html`<text x=${from + 6} y=${y + 14}>${words}</text>`}
  </g>`;
}

function Promised({ x, foot, y, words, width }) {
  const isRight = x > width / 2;
  return html`<g class="promised"><line x1=${x} x2=${x} y1="0" y2=${y} /><text x=${isRight ? x - 5 : x + 5} y=${y} text-anchor=${isRight ? "end" : "start"}>${words}</text></g>`;
}

// Marks with the place of their number, so that none covers another of its lane.
function apart(marks, x, width) {
  const last = new Map();
  return marks.map((mark) => {
    const at = Math.min(width - 10, Math.max(x(mark.at), last.get(mark.lane) ?? 10));
    last.set(mark.lane, at + 20);
    return { ...mark, x: at };
  });
}

// The width of the element that the first result is the `ref` of.
function useWidth() {
  const box = useRef(null);
  const [width, set] = useState(320);
  useEffect(() => {
    const look = () => box.current && set(Math.max(240, Math.floor(box.current.clientWidth)));
    look();
    const resized = new ResizeObserver(look);
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  return [box, width];
}
