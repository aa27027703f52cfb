"""Policies side by side, and rules of rescheduling: which of them keep the most promises, from light load to overload.

    python -m bench.policies [--policies NAME ...] [--rates R ...] [--requests N] [--seeds 3] [--jobs N]
    python -m bench.policies --rules NAME ... [--kv-tokens N] [the same]

Two small engines with tight promises, for which little is left to chance: one prefills, one multiplexes, with the costs
of a small model on a CPU core. With ``--rules``, four that all prefill and decode, and give requests to each other by
each rule, beside none. Each policy and rule serves the very same requests, so that rules are compared request by
request. The product's own gateway and engines, simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from statistics import fmean

from bench.harness.arguments import add_names, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import grouped
from bench.harness.paired import difference
from bench.harness.tables import print_table
from bench.simulated import arriving, attainment, make_fleet, make_simulation, modelled_engine, run_cases, serve
from engines.costs.profiles import EngineProfile
from mesh.rules import Trigger
from mesh.topology.schema import PolicySpec, Rescheduling, ServiceSpec, Slo
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.loads.trace_request import TraceRequest

POLICIES = ("foresight", "tropical", "packing", "elastic", "chunked", "llumnix", "disaggregated")
RULES: dict[str, tuple[Trigger, ...] | None] = {
    "none": None,
    "freeness": (Trigger.LOAD, Trigger.ROLE),
    "promise": (Trigger.PROMISE, Trigger.ROLE),
    "both": (Trigger.PROMISE, Trigger.LOAD, Trigger.ROLE),
}
PROMPTS, SLO = (32, 512), Slo(0.8, 0.04, 0.9)
CASES = {  # lengths of answers in tokens, uniform between two bounds, and requests a second
    "tight": ((16, 96), (1, 2, 2.8, 6, 8, 12)),
    "long answers": ((100, 400), (1, 1.5, 2, 3, 6)),
}
ROLES = {"prefill": Role.PREFILL, "decode": Role.MULTIPLEX}
RESCHEDULING = {f"engine-{number}": Role.MULTIPLEX for number in range(4)}  # roles, where rules are compared
NUM_LENGTHS = 4000  # of which requests are drawn
STEPS = ((1, 0.0076), (2, 0.0083), (4, 0.0103), (6, 0.0164), (8, 0.0193), (16, 0.032))  # of so many decodes, in s
PROFILE = EngineProfile(
    "135M parameters on one CPU core",
    PrefillCost(0.0143, 0.00133),
    DecodeCost(0.006, 0.00162, 2.07e-6, STEPS),
    kv_bytes_per_token=46080,
    kv_memory_bytes=256 * 2**20,
    source="the default model's engine as it measured itself, rounded",
)
KV_TOKENS = PROFILE.kv_memory_bytes // PROFILE.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class Run:
    """``rule``: of `RULES`; None: an engine that prefills and one that multiplexes."""

    case: str
    policy: str
    rate: float
    seed: int
    num_requests: int
    rule: str | None = None
    kv_tokens: int = KV_TOKENS  # of an engine


@dataclass(frozen=True, slots=True)
class Result:
    """``attainment``: the share of the requests that met both promises. ``moves``: of each request, on average."""

    attainment: float
    moves: float


def lengths(case: str) -> list[TraceRequest]:
    random, (answers, _) = Random(case), CASES[case]
    return [TraceRequest(0.0, random.randint(*PROMPTS), random.randint(*answers)) for _ in range(NUM_LENGTHS)]


def result_of(run: Run) -> Result:
    roles, triggers = (ROLES, None) if run.rule is None else (RESCHEDULING, RULES[run.rule])
    topology = make_fleet(
        run.case,
        ServiceSpec("model", "small", SLO),
        [modelled_engine(name, "model", "small", role=role, chunk_tokens=256) for name, role in roles.items()],
        PolicySpec(run.policy),
        rescheduling=None if triggers is None else Rescheduling(triggers=triggers),
    )
    profile = replace(PROFILE, kv_memory_bytes=run.kv_tokens * PROFILE.kv_bytes_per_token)
    simulation = make_simulation(topology, profile, run.seed, coasts=triggers is None)
    requests = arriving(lengths(run.case), run.rate, run.num_requests, Random(f"{run.seed}/trace"))
    records = serve(simulation, "model", requests)
    statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
    return Result(attainment(records), sum(status.migrations_total for status in statuses) / len(records))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = script_parser("bench.policies", __doc__, seeds=3, jobs=True, json=True)
    add_names(parser, "--cases", CASES)
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME", help="(default: seven)")
    parser.add_argument("--rules", nargs="+", choices=RULES, metavar="NAME", help=f"beside none, of {', '.join(RULES)}")
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second (default: the cases')")
    parser.add_argument("--requests", type=int, default=1500, metavar="N", help="of each run (default: 1500)")
    parser.add_argument(
        "--kv-tokens", type=int, default=KV_TOKENS, metavar="N", help=f"of each engine (default: {KV_TOKENS})"
    )
    options = parser.parse_args(arguments)
    rates = {case: options.rates or CASES[case][1] for case in options.cases}
    rules = [None] if options.rules is None else [*dict.fromkeys(("none", *options.rules))]
    runs = [
        Run(case, policy, rate, seed, options.requests, rule, options.kv_tokens)
        for case, policy, rule, seed in product(options.cases, options.policies, rules, range(options.seeds))
        for rate in rates[case]
    ]
    results = run_cases(result_of, runs, options.jobs)

    of_seeds = grouped(results, lambda run: replace(run, seed=0))

    def cell(run: Run) -> str:
        own = of_seeds[run]
        if run.rule in (None, "none"):
            return f"{100 * fmean(one.attainment for one in own):.1f}"
        ours, alone = ([100 * one.attainment for one in each] for each in (own, of_seeds[replace(run, rule="none")]))
        return f"{difference(ours, alone).text(1)}; {fmean(one.moves for one in own):.2f}"

    gains = "" if options.rules is None else ", then gains in points (95 %) and moves a request"
    for case in options.cases:
        cells = {run: cell(run) for run in of_seeds if run.case == case}
        lines = grouped(cells, lambda run: (run.policy,) if run.rule is None else (run.policy, run.rule))
        rows = [[*words, *own] for words, own in lines.items()]
        headings = ["policy"] if options.rules is None else ["policy", "rule"]
        print_table(f"{case}: promises kept, %{gains}", headings, [f"{rate:g}/s" for rate in rates[case]], rows)
    write_json(options.json, [{"run": run, "result": results[run]} for run in runs])


if __name__ == "__main__":
    main()
