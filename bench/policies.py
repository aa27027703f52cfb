"""Policies side by side: which of them keeps the most promises, at rates from light load to overload.

Small engines with tight promises, for which little is left to chance: each case is two or four engines of one small
model (measured on a CPU core, rounded), lengths, and promises. The product's own gateway and engines, simulated.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from bench.harness.arguments import add_jobs, add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.simulated import make_fleet, modelled_engine, run_cases
from engines.costs.profiles import EngineProfile
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.experiment import Experiment, SyntheticLoad
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest

POLICIES = ("foresight", "tropical", "packing", "elastic", "chunked", "llumnix", "disaggregated")
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
class Case:
    """Lengths are tokens, uniform between two bounds. ``rates`` are requests a second."""

    name: str
    prompts: tuple[int, int]
    answers: tuple[int, int]
    ttft_s: float
    tpot_s: float
    rates: tuple[float, ...]
    num_pairs: int = 1  # of an engine that prefills and one that multiplexes

    def lengths(self) -> list[TraceRequest]:
        random = Random(self.name)
        return [
            TraceRequest(0.0, random.randint(*self.prompts), random.randint(*self.answers)) for _ in range(NUM_LENGTHS)
        ]

    def topology(self, policy: str) -> Topology:
        roles = {f"prefill-{pair}": Role.PREFILL for pair in range(self.num_pairs)}
        roles |= {f"decode-{pair}": Role.MULTIPLEX for pair in range(self.num_pairs)}
        engines = [modelled_engine(name, "model", "small", role=role, chunk_tokens=256) for name, role in roles.items()]
        service = ServiceSpec("model", "small", Slo(self.ttft_s, self.tpot_s, 0.9))
        return make_fleet(self.name, service, engines, PolicySpec(policy))


CASES = {
    case.name: case
    for case in (
        Case("tight", (32, 512), (16, 96), 0.8, 0.04, (1, 2, 2.8, 6, 8, 12)),
        Case("tighter", (16, 256), (16, 96), 0.4, 0.025, (3, 6, 12, 20)),
        Case("long answers", (32, 512), (100, 400), 0.8, 0.04, (1, 1.5, 2, 3, 6)),
        Case("four engines", (32, 512), (16, 96), 0.8, 0.04, (4, 6, 12, 24), num_pairs=2),
        Case("relaxed", (16, 1024), (16, 256), 3.0, 0.06, (1, 1.5, 2, 3, 6)),
    )
}


@dataclass(frozen=True, slots=True)
class Run:
    case: str
    policy: str
    rate: float
    seed: int
    num_requests: int


def attainment_of(run: Run) -> float:
    """Return the share of the requests that met both promises."""
    case = CASES[run.case]
    topology = case.topology(run.policy)
    profiles = dict.fromkeys([engine.id for engine in topology.engines], PROFILE)
    load = SyntheticLoad(case.lengths(), Arrivals(run.rate), 1e9, run.num_requests)
    return Experiment(topology, profiles, "model", load, topology.policy, run.rate, run.seed).run().attainment


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    cases = [CASES[name] for name in options.cases]
    runs = [
        Run(case.name, policy, rate, seed, options.requests)
        for case in cases
        for policy in options.policies
        for rate in options.rates or case.rates
        for seed in range(options.seeds)
    ]
    results = run_cases(attainment_of, runs, options.jobs)
    console = make_console()
    for case in cases:
        rates = options.rates or case.rates
        table = make_table(f"{case.name}: promises kept, %", ["policy"], [f"{rate:g}/s" for rate in rates])
        for policy in options.policies:
            shares = [
                fmean(results[Run(case.name, policy, rate, seed, options.requests)] for seed in range(options.seeds))
                for rate in rates
            ]
            table.add_row(policy, *[f"{share:.1%}"[:-1] for share in shares])
        console.print(table)
    if options.json is not None:
        write_json(options.json, [{"run": run, "attainment": results[run]} for run in runs])


def _parser() -> argparse.ArgumentParser:
    parser = script_parser("bench.policies", __doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME", help="(default: seven)")
    parser.add_argument("--rates", nargs="+", type=float, metavar="R", help="requests a second (default: the cases')")
    parser.add_argument("--requests", type=int, default=1500, metavar="N", help="of each run (default: 1500)")
    add_seeds(parser, 3)
    add_jobs(parser)
    add_json(parser)
    return parser


if __name__ == "__main__":
    main()
