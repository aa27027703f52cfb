// Curves and words of simulations.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as whatIf from "../../../router/ui/static/what_if.js";

const quantiles = Array.from({ length: 201 }, (_, index) => index / 1000);
const run = (policy, attainment, goodput = 1) => ({ policy, attainment, goodput, ttft: { quantiles }, tpot: null, moments: [[1, 0, 0, 0, 0, 0.5], [2, 0, 0, 0, 0, null]] });

test("curves of several runs share one axis", () => {
  assert.deepEqual(whatIf.columns([[[1, 10], [3, 30]], [[2, 20]]]), [[1, 2, 3], [10, null, 30], [null, 20, null]]);
  assert.deepEqual(whatIf.overTime([run("a", 1)]), [[1], [50]]);
  const [places, shares] = whatIf.distributions([run("a", 1)], "ttft");
  assert.equal(places.at(-1), 198);
  assert.equal(shares.at(-1), 99);
  assert.deepEqual(whatIf.distributions([run("a", 1)], "tpot"), [[], []]);
});

test("the verdict names the best, by how much, and whether that is enough", () => {
  const said = whatIf.verdict({ attainment: 0.9, recorded: run("as recorded", 0.7), runs: [run("a", 0.8), run("b", 0.951), run("c", 0.95)] });
  assert.deepEqual([said.best, said.isEnough], ["b", true]);
  assert.equal(said.words, "b keeps both promises for 95.1 % of the requests, which is enough for the 90 % that are promised. As good within half a point: c. That is 15.1 points more than a. As recorded, it was 70.0 %: 25.1 points less.");
  assert.match(whatIf.verdict({ attainment: 0.99, recorded: null, runs: [run("a", 0.8)] }).words, /not enough/);
});

test("a question is a path with all that is to be tried", () => {
  assert.equal(whatIf.questionOf({ source: "recording", policies: ["a:x=1"], engines: ["unchanged"] }), "/mesh/what-if?source=recording&policy=a%3Ax%3D1&engines=unchanged");
});
