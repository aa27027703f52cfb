// What simulations came to, as curves, rows and words. Nothing here touches the page.

const AS_GOOD = 0.005; // attainments that differ by less are equal

// Everything that a comparison has curves of: what was recorded, if anything, then each run.
export const outcomesOf = ({ recorded, runs }) => [...(recorded ? [recorded] : []), ...runs];

export const percentile = (distribution, percent) => distribution?.quantiles[2 * percent] ?? null;

// uPlot's columns of curves [[x, y], ...] that share no x.
export function columns(curves) {
  const places = [...new Set(curves.flatMap((curve) => curve.map(([x]) => x)))].sort((one, other) => one - other);
  const of = curves.map((curve) => new Map(curve));
  return [places, ...of.map((curve) => places.map((x) => curve.get(x) ?? null))];
}

// Shares of requests (%) by milliseconds, up to the slowest P99 of any.
export function distributions(outcomes, field) {
  const longest = Math.max(0, ...outcomes.map((outcome) => percentile(outcome[field], 99) ?? 0));
  const curve = ({ quantiles = [] } = {}) =>
    quantiles.map((value, index) => [1000 * value, (100 * index) / (quantiles.length - 1)]).filter(([x]) => x <= 1000 * longest);
  return columns(outcomes.map((outcome) => curve(outcome[field] ?? undefined)));
}

// Attainment (%) by seconds from the first request.
export const overTime = (outcomes) =>
  columns(outcomes.map(({ moments }) => moments.filter(([, , , , , kept]) => kept !== null).map(([at, , , , , kept]) => [at, 100 * kept])));

const better = (one, other) =>
  Math.abs(one.attainment - other.attainment) >= AS_GOOD
    ? other.attainment - one.attainment
    : other.goodput - one.goodput || (percentile(one.ttft, 99) ?? Infinity) - (percentile(other.ttft, 99) ?? Infinity);

const percent = (part) => `${(100 * part).toFixed(1)} %`;
const points = (one, other) => `${(100 * (one.attainment - other.attainment)).toFixed(1)} points`;

// Who keeps most promises, by how much, and whether that is enough.
export function verdict({ attainment, recorded, runs }) {
  const [best, ...others] = [...runs].sort(better);
  const isEnough = best.attainment >= attainment;
  const words = [`${best.policy} keeps both promises for ${percent(best.attainment)} of the requests, which is ${isEnough ? "enough" : "not enough"} for the ${Math.round(100 * attainment)} % that are promised.`];
  const equals = others.filter((other) => best.attainment - other.attainment < AS_GOOD);
  if (equals.length) words.push(`As good within half a point: ${equals.map(({ policy }) => policy).join("; ")}.`);
  const next = others.find((other) => best.attainment - other.attainment >= AS_GOOD);
  if (next) words.push(`That is ${points(best, next)} more than ${next.policy}.`);
  if (recorded) words.push(compared(best, recorded));
  return { best: best.policy, isEnough, words: words.join(" ") };
}

function compared(best, recorded) {
  const gap = best.attainment - recorded.attainment;
  if (Math.abs(gap) < AS_GOOD) return `As recorded, it was ${percent(recorded.attainment)}: about the same.`;
  return `As recorded, it was ${percent(recorded.attainment)}: ${points(gap > 0 ? best : recorded, gap > 0 ? recorded : best)} ${gap > 0 ? "less" : "more"}.`;
}

// The path that asks. `engines`: what is to be tried, as `mesh simulate --engines` reads it.
export function questionOf({ source, policies, engines }) {
  const query = new URLSearchParams([["source", source], ...policies.map((policy) => ["policy", policy]), ...engines.map((counts) => ["engines", counts])]);
  return `/mesh/what-if?${query}`;
}
