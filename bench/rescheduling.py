"""Rules of rescheduling side by side: how many promises engines keep that give requests to each other, and how.

    python -m bench.rescheduling [--cases CASE ...] [--policies NAME ...] [--rules NAME ...] [--requests N] [--seeds 5]

Four small engines that all prefill and decode, with the costs of a small model on a CPU core. Each rule serves the very
same requests, so that rules are compared request by request. The product's own gateway and engines, simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf
from random import Random
from statistics import fmean

from bench.harness.arguments import add_names, script_parser
from bench.harness.files import write_json
from bench.harness.paired import difference
from bench.harness.tables import print_table
from bench.policies import PROFILE, PROMPTS, SLO
from bench.simulated import attainment, make_fleet, make_simulation, modelled_engine, run_cases, serve
from mesh.rules import Trigger
from mesh.topology.schema import PolicySpec, Rescheduling, ServiceSpec
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest

NUM_ENGINES = 4
NUM_LENGTHS = 4000  # of which requests are drawn
RULES: dict[str, tuple[Trigger, ...] | None] = {
    "none": None,
    "freeness": (Trigger.LOAD, Trigger.SLACK, Trigger.ROLE),
    "promise": (Trigger.PROMISE, Trigger.ROLE),
    "both": (Trigger.PROMISE, Trigger.LOAD, Trigger.ROLE),
}
CASES = {"long answers": 5600, "scarce memory": 2400}  # tokens that each engine's memory holds
ANSWERS = ((100, 400),)  # bounds of lengths in tokens, of which each is as likely as the other
RATES = (1.0, 4.0, 6.0, 8.0)  # requests a second, the first one light


@dataclass(frozen=True, slots=True)
class Run:
    case: str
    policy: str
    rule: str
    rate: float
    seed: int
    num_requests: int


@dataclass(frozen=True, slots=True)
class Result:
    """``attainment``: the share of the requests that met both promises. ``moves``: of each request, on average."""

    attainment: float
    moves: float


def requests_of(run: Run) -> list[TraceRequest]:
    """Return the same requests for each policy and rule."""
    random = Random(run.case)
    lengths = [
        TraceRequest(0.0, random.randint(*PROMPTS), random.randint(*random.choice(ANSWERS))) for _ in range(NUM_LENGTHS)
    ]
    return list(islice(synthesize(lengths, Arrivals(run.rate), inf, Random(f"{run.seed}/trace")), run.num_requests))


def result_of(run: Run) -> Result:
    triggers = RULES[run.rule]
    topology = make_fleet(
        run.case,
        ServiceSpec("model", "small", SLO),
        [modelled_engine(f"engine-{number}", "model", "small", chunk_tokens=256) for number in range(NUM_ENGINES)],
        PolicySpec(run.policy),
        rescheduling=None if triggers is None else Rescheduling(triggers=triggers),
    )
    profile = replace(PROFILE, kv_memory_bytes=CASES[run.case] * PROFILE.kv_bytes_per_token)
    simulation = make_simulation(topology, profile, run.seed)
    records = serve(simulation, "model", requests_of(run))
    statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    return Result(attainment(records), sum(status.migrations_total for status in statuses) / len(records))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = script_parser("bench.rescheduling", __doc__, seeds=5, jobs=True, json=True)
    add_names(parser, "--cases", CASES)
    parser.add_argument(
        "--policies", nargs="+", default=["foresight", "llumnix"], metavar="NAME", help="(default: two)"
    )
    add_names(parser, "--rules", RULES)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES, metavar="R", help="requests a second")
    parser.add_argument("--requests", type=int, default=600, metavar="N", help="of each run (default: 600)")
    options = parser.parse_args(arguments)
    rules = ["none", *(rule for rule in options.rules if rule != "none")]
    runs = [
        Run(case, policy, rule, rate, seed, options.requests)
        for case, policy, rule, seed in product(options.cases, options.policies, rules, range(options.seeds))
        for rate in options.rates
    ]
    results = run_cases(result_of, runs, options.jobs)

    def cell(case: str, policy: str, rule: str, rate: float) -> str:
        def of(name: str) -> list[Result]:
            return [results[Run(case, policy, name, rate, seed, options.requests)] for seed in range(options.seeds)]

        if rule == "none":
            return f"{100 * fmean(one.attainment for one in of(rule)):.1f}"
        ours, alone = ([100 * one.attainment for one in of(name)] for name in (rule, "none"))
        return f"{difference(ours, alone).text(1)}; {fmean(one.moves for one in of(rule)):.2f}"

    for case, policy in product(options.cases, options.policies):
        rows = [[rule, *(cell(case, policy, rule, rate) for rate in options.rates)] for rule in rules]
        title = f"{case}, {policy}: promises kept, %, then gains in points (95 %); and moves a request"
        print_table(title, ["rule"], [f"{rate:g}/s" for rate in options.rates], rows)
    write_json(options.json, [{"run": run, "result": results[run]} for run in runs])


if __name__ == "__main__":
    main()
