"""Policies side by side: which of them keeps the most promises, at rates from light load to overload.

    python -m bench.policies [--policies NAME ...] [--rates R ...] [--requests N] [--seeds 3] [--jobs N]

Two small engines with tight promises, for which little is left to chance: one prefills, one multiplexes, with the costs
of a small model on a CPU core. The product's own gateway and engines, simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import fmean

from bench.harness.arguments import add_names, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import make_fleet, modelled_engine, run_cases
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.experiment import Experiment
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.sources import LoadLevel, SyntheticLoad
from simulation.loads.trace_request import TraceRequest

POLICIES = ("foresight", "tropical", "packing", "elastic", "chunked", "llumnix", "disaggregated")
PROMPTS, SLO = (32, 512), Slo(0.8, 0.04, 0.9)
CASES = {  # lengths of answers in tokens, uniform between two bounds, and requests a second
    "tight": ((16, 96), (1, 2, 2.8, 6, 8, 12)),
    "long answers": ((100, 400), (1, 1.5, 2, 3, 6)),
}
ROLES = {"prefill": Role.PREFILL, "decode": Role.MULTIPLEX}
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


@dataclass(frozen=True, slots=True)
class Run:
    case: str
    policy: str
    rate: float
    seed: int
    num_requests: int


def lengths(case: str) -> list[TraceRequest]:
    random, (answers, _) = Random(case), CASES[case]
    return [TraceRequest(0.0, random.randint(*PROMPTS), random.randint(*answers)) for _ in range(NUM_LENGTHS)]


def attainment_of(run: Run) -> float:
    """Return the share of the requests that met both promises."""
    engines = [modelled_engine(name, "model", "small", role=role, chunk_tokens=256) for name, role in ROLES.items()]
    topology = make_fleet(run.case, ServiceSpec("model", "small", SLO), engines, PolicySpec(run.policy))
    load = SyntheticLoad(lengths(run.case), Arrivals(run.rate), 1e9, run.num_requests)
    profiles = dict.fromkeys(ROLES, PROFILE)
    return (
        Experiment(topology, profiles, "model", load, topology.policy, LoadLevel(run.rate), run.seed).run().attainment
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = script_parser("bench.policies", __doc__, seeds=3, jobs=True, json=True)
    add_names(parser, "--cases", CASES)
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME", help="(default: seven)")
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second (default: the cases')")
    parser.add_argument("--requests", type=int, default=1500, metavar="N", help="of each run (default: 1500)")
    options = parser.parse_args(arguments)
    rates = {case: options.rates or CASES[case][1] for case in options.cases}
    runs = [
        Run(case, policy, rate, seed, options.requests)
        for case, policy, seed in product(options.cases, options.policies, range(options.seeds))
        for rate in rates[case]
    ]
    results = run_cases(attainment_of, runs, options.jobs)

    def kept(case: str, policy: str, rate: float) -> str:
        seeds = range(options.seeds)
        return f"{100 * fmean(results[Run(case, policy, rate, seed, options.requests)] for seed in seeds):.1f}"

    for case in options.cases:
        rows = [[policy, *(kept(case, policy, rate) for rate in rates[case])] for policy in options.policies]
        print_table(f"{case}: promises kept, %", ["policy"], [f"{rate:g}/s" for rate in rates[case]], rows)
    write_json(options.json, [{"run": run, "attainment": results[run]} for run in runs])


if __name__ == "__main__":
    main()
