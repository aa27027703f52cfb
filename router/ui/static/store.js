// What this page knows of the mesh: frames of the feed, folded. Views read `state` and are called when it has changed.

const KEPT_REQUESTS = 400;
const KEPT_MOVES = 40;
const KEPT_PREDICTIONS = 400;
const KEPT_DECISIONS = 50;
const KEPT_BUCKETS_S = 15 * 60;

export const state = {
  link: "connecting", // live, lost, locked
  problem: "",
  hello: null,
  engines: new Map(),
  gateways: new Map(),
  rest: {},
  requests: new Map(), // by id, oldest first
  moves: [], // newest first
  predictions: [],
  oneIn: 1,
  buckets: new Map(),
  bucketS: 5,
  placement: null,
  decisions: [], // newest first
};

const readers = new Set();
const travellers = new Set();
let isDue = false;
let version = 0;

// How often the state has changed.
export const versionNow = () => version;

// Calls `reader` at most once a frame of the screen. Returns what ends that.
export function watch(reader) {
  readers.add(reader);
  return () => readers.delete(reader);
}

// Calls `traveller` with each {id, from, to, kind} as it happens: dispatch, handover, migration.
export function watchTravels(traveller) {
  travellers.add(traveller);
  return () => travellers.delete(traveller);
}

export function changed() {
  version += 1;
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const reader of [...readers]) reader();
  });
}

export function setLink(link, problem = "") {
  state.link = link;
  state.problem = problem;
  changed();
}

export function take(frame) {
  folds[frame.frame]?.(frame);
  changed();
}

const folds = {
  hello(frame) {
    state.hello = frame;
    state.engines = new Map();
    state.gateways = new Map();
    state.requests = new Map();
    state.buckets = new Map();
  },
  mesh(frame) {
    merge(state.engines, frame.engines);
    merge(state.gateways, frame.gateways);
    if (frame.rest) state.rest = frame.rest;
  },
  requests(frame) {
    state.oneIn = frame.one_in;
    for (const event of frame.events) happen(event);
    while (state.requests.size > KEPT_REQUESTS) state.requests.delete(state.requests.keys().next().value);
  },
  promises(frame) {
    state.bucketS = frame.bucket_s;
    for (const bucket of frame.buckets) state.buckets.set(`${bucket.at} ${bucket.service} ${bucket.key}`, bucket);
    for (const [name, bucket] of state.buckets) if (bucket.at < frame.at - KEPT_BUCKETS_S) state.buckets.delete(name);
  },
  placement(frame) {
    state.placement = frame.status;
    const decision = frame.status?.decision;
    if (decision && state.decisions[0]?.interval !== decision.interval)
      state.decisions = [{ ...decision, at: frame.at - frame.status.decision_age_s }, ...state.decisions].slice(0, KEPT_DECISIONS);
  },
};

function merge(rows, changes) {
  for (const [id, row] of Object.entries(changes)) {
    if (row === null) rows.delete(id);
    else rows.set(id, row);
  }
}

function happen(event) {
  const known = state.requests.get(event.id);
  const request = known ?? { id: event.id, service: event.service, key: event.key ?? "", arrivedAt: event.at, engine: "", moves: 0 };
  if (!known) state.requests.set(event.id, request);
  request.what = event.what;
  request.at = event.at;
  telling[event.what]?.(request, event);
}

const telling = {
  arrived(request, event) {
    request.arrivedAt = event.at;
    request.promptTokens = event.prompt_tokens ?? 0;
  },
  dispatched(request, event) {
    travel(request, "dispatch", state.hello?.gateway ?? "", event.engine, event.at);
    Object.assign(request, { engine: event.engine, decode: event.decode, rule: event.reason, predictedS: event.predicted_s });
  },
  waits: (request, event) => (request.reason = event.reason),
  refused: (request, event) => (request.reason = event.reason),
  interrupted(request, event) {
    request.reason = event.reason;
    request.engine = "";
  },
  moved(request, event) {
    if (!request.engine || request.engine === event.engine) return void (request.engine = event.engine);
    const isHandOver = request.moves === 0 && event.engine === request.decode;
    travel(request, isHandOver ? "handover" : "migration", request.engine, event.engine, event.at);
    if (!isHandOver) request.migrations = (request.migrations ?? 0) + 1;
    request.moves += 1;
    request.engine = event.engine;
  },
  first_token(request, event) {
    request.engine = event.engine;
    request.ttftS = event.ttft_s;
    if (event.predicted_s > 0) {
      state.predictions.push({ service: request.service, predicted: event.predicted_s, took: event.took_s, at: event.at });
      if (state.predictions.length > KEPT_PREDICTIONS) state.predictions.shift();
    }
  },
  ended(request, event) {
    Object.assign(request, { outcome: event.outcome, reason: event.reason, tokens: event.tokens ?? 0, ttftS: event.ttft_s, tpotS: event.tpot_s, kept: event.kept });
  },
};

function travel(request, kind, from, to, at) {
  const move = { id: request.id, service: request.service, kind, from, to, at };
  state.moves = [move, ...state.moves].slice(0, KEPT_MOVES);
  for (const traveller of travellers) traveller(move);
}

export const inFlight = () => [...state.requests.values()].filter((request) => request.what !== "ended");
