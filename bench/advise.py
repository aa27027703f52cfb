"""The search of `mesh advise --simulate` beside a grid: what it costs, and whether its answer is as good.

    python -m bench.advise [--every 1] [--jobs N | --on ray] [--json FILE]
    python -m bench.advise --small 10

The load is made up: completions of code, prompts of 1,700 tokens and answers of 30 in the mean, 4 requests a second in
Poisson arrivals. The grid simulates every topology on the samples of the search's last round, as many requests as the
recording has, and its answer is the cheapest whose mean keeps the goal. With ``--every 10`` it simulates all that cost
no more than the search's answer, which decides its own, and of the others each tenth, whose CPU counts ten times. The
answers of both are then simulated on samples that neither has seen. With ``--small``, small cases are searched, and
held against what the search's own test says when every candidate is simulated in full.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any, Final

from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from engines.costs.advice import LatencyPromise, Lengths
from engines.costs.named_profiles import load_profile
from mesh.jobs.runner import JobPlace
from mesh.show.progress import working
from simulation.command.policy_names import parse_policy
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import mean_rate
from simulation.search.candidates import EngineOffer, SearchCandidate, SearchSpace
from simulation.search.evidence import SampleResult
from simulation.search.halving import Halving, SearchEffort
from simulation.search.sample_runs import SampleRunner, SampleRuns
from simulation.search.search import search_topologies

PRICES: Final = {"a100-llama2-13b-tp1": 1.0, "a100-llama2-13b-tp2": 2.0, "h100-llama2-13b-tp1": 2.6}
POLICIES: Final = ("chunked", "elastic", "foresight", "least_loaded", "tropical", "tropical:watermark=0.7")
CHUNKS: Final = 1024
PROMISE: Final = LatencyPromise(1.0, 0.05)
GOAL, CONFIDENCE, RATE = 0.9, 0.95, 4.0
NUM_REQUESTS, GRID = 1440, 200  # of the recording; candidates
UNSEEN: Final = range(1000, 1012)  # seeds
LIVES: Final = 1.5
SMALL_REQUESTS, SMALL_GRID = 240, 16


@dataclass(frozen=True, slots=True)
class SearchCase:
    """What is to be served, and the topologies to choose from."""

    requests: Sequence[TraceRequest]
    candidates: Sequence[SearchCandidate]
    effort: SearchEffort

    @property
    def runner(self) -> SampleRunner:
        promises = {"ttft_ms": 1e3 * PROMISE.ttft_s, "tpot_ms": 1e3 * PROMISE.tpot_s, "attainment": GOAL}
        return SampleRunner(self.requests, {"code": promises}, GOAL)


def completions(count: int, seed: int, rate: float = RATE) -> Iterator[TraceRequest]:
    random, at_s = Random(f"{seed}/completions"), 0.0
    for _ in range(count):
        num_input, num_output = random.lognormvariate(7.2, 0.7), random.lognormvariate(3.2, 0.6)
        lengths = min(3500, max(8, round(num_input))), min(400, max(2, round(num_output)))
        yield TraceRequest(at_s, *lengths, service="code")
        at_s += random.expovariate(rate)


def make_case(num_requests: int, grid: int, seed: int, rate: float = RATE) -> SearchCase:
    """``grid`` candidates, evenly spread over those that a search would have by their prices."""
    requests = list(completions(num_requests, seed, rate))
    offers = [EngineOffer(load_profile(name), name, price) for name, price in PRICES.items()]
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    space = SearchSpace(offers, [parse_policy(text) for text in POLICIES], (CHUNKS,), 32)
    found = space.candidates(lengths, PROMISE, mean_rate(requests))
    spread = [found[index * len(found) // min(grid, len(found))] for index in range(min(grid, len(found)))]
    lifetime_s = PROMISE.ttft_s + lengths.num_output * PROMISE.tpot_s
    least = round(LIVES * lifetime_s * rate)
    return SearchCase(requests, spread, SearchEffort(GOAL, CONFIDENCE, num_requests, least))


def search(case: SearchCase, place: JobPlace) -> Halving:
    with working("searching") as shown:
        return search_topologies(case.candidates, case.effort, case.runner, place, shown)


# --- beside a grid ----------------------------------------------------------------------------------------------------


def simulate_all(
    case: SearchCase, candidates: Sequence[SearchCandidate], seeds: Sequence[int], place: JobPlace
) -> list[list[SampleResult]]:
    """The samples of each, of the length that the search's last round has."""
    num_requests = case.effort.lengths(len(case.candidates))[-1]
    jobs = [SampleRuns(candidate, num_requests, seeds) for candidate in candidates]
    return run_jobs(case.runner, jobs, place, f"{len(jobs)} topologies")


def compare(case: SearchCase, every: int, place: JobPlace) -> list[dict[str, Any]]:
    """The search and the grid, which takes each of ``every`` candidates that are dearer than the search's answer."""
    halving = search(case, place)
    dearest = inf if halving.best is None else case.candidates[halving.best].price
    cheap = [index for index, candidate in enumerate(case.candidates) if candidate.price <= dearest]
    others = range(len(cheap), len(case.candidates), every)  # candidates are in the order of prices
    taken = [*cheap, *others]
    results = simulate_all(case, [case.candidates[index] for index in taken], range(case.effort.num_samples), place)
    grid = dict(zip(taken, results, strict=True))
    cpu_s = cpu_of(grid[index] for index in cheap)
    if others:
        cpu_s += cpu_of(grid[index] for index in others) * (len(case.candidates) - len(cheap)) / len(others)
    best = next((index for index in taken if mean(grid[index]) >= GOAL), None)
    answers = {"search": (halving.best, halving.cpu_s, halving.num_simulated)}
    answers["grid"] = (best, cpu_s, len(case.candidates) * case.effort.num_requests)
    rows = []
    for name, (answer, spent_s, num_requests) in answers.items():
        row: dict[str, Any] = {"by": name, "requests": num_requests, "cpu_s": spent_s}
        if answer is not None:
            candidate = case.candidates[answer]
            unseen = mean(simulate_all(case, [candidate], UNSEEN, place)[0])
            row |= {"answer": candidate.words(), "price": candidate.price, "seen": mean(grid[answer]), "unseen": unseen}
        rows.append(row)
    return rows


def cpu_of(grid: Iterable[Sequence[SampleResult]]) -> float:
    """Seconds."""
    return sum(result.cpu_s for results in grid for result in results)


def mean(results: Sequence[SampleResult]) -> float:
    """Their attainment."""
    return sum(result.attainment for result in results) / len(results)


# --- small cases ------------------------------------------------------------------------------------------------------


def search_small(seed: int) -> dict[str, Any]:
    """The price that the search finds, and the lowest of all candidates that keep the promise in full samples."""
    case = make_case(SMALL_REQUESTS, SMALL_GRID, seed, Random(seed).uniform(1.0, 4.0))
    case = replace(case, effort=replace(case.effort, least_requests=SMALL_REQUESTS // case.effort.num_samples // 4))
    found = search(case, JobPlace(1))
    in_full = replace(case.effort, least_requests=SMALL_REQUESTS)
    prices, num_simulated = [], 0
    for candidate in case.candidates:
        alone = search(SearchCase(case.requests, [candidate], in_full), JobPlace(1))
        num_simulated += alone.num_simulated
        prices += [candidate.price] if alone.best is not None else []
    price = None if found.best is None else case.candidates[found.best].price
    return {
        "seed": seed,
        "found": price,
        "lowest": min(prices, default=None),
        "share": found.num_simulated / num_simulated,
    }


def main() -> None:
    parser = script_parser("bench.advise", __doc__, jobs=True, json=True)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each Nth of the grid's dear ones")
    parser.add_argument("--small", type=int, metavar="N", help="so many small cases instead")
    options = parser.parse_args()
    write_json(options.json, _small(options) if options.small else _beside_a_grid(options))


def _small(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = run_jobs(search_small, range(options.small), options.jobs, "small cases")
    cells = [[f"{row['seed']}", f"{row['found']}", f"{row['lowest']}", f"{row['share']:.1%}"] for row in rows]
    print_table("Small cases", (), ("seed", "price found", "lowest price", "of all requests"), cells)
    return rows


def _beside_a_grid(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = compare(make_case(NUM_REQUESTS, GRID, seed=0), options.every, options.jobs)
    numbers = ("CPU", "requests", "price", "kept", "unseen")
    cells = [
        [
            row["by"],
            row.get("answer", "none"),
            f"{row['cpu_s']:.0f} s",
            f"{row['requests']}",
            f"{row['price']:g}" if "price" in row else "-",
            *(f"{row[key]:.1%}" if key in row else "-" for key in ("seen", "unseen")),
        ]
        for row in rows
    ]
    print_table(f"{GRID} topologies", ("by", "answer"), numbers, cells, width=160)
    return rows


if __name__ == "__main__":
    main()
