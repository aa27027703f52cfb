"""Goodput against load, up to three times what a mesh can sustain: it should stay where it peaked.

    python -m bench.gateway.overload [--policies NAME ...] [--factors F ...] [--duration S] [--seeds N] [--json FILE]

A prefill and a multiplexing engine, A100s with Llama-2-70B and tensor parallelism 4; long inputs, short outputs,
Poisson arrivals; TTFT SLO 5 times the unloaded prefill, TPOT SLO 100 ms. Bounds of queues are the product's own. The
sustainable load of a policy is where 90 % of its requests meet both SLOs; goodput counts those that do. Simulated.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.harness.arguments import add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.live.lengths import Bounds
from bench.simulated import attainment, make_simulation, percentile, serve
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Outcome, Record
from simulation.capacity import find_capacity
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest

POLICIES = ("tropical", "elastic")
FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0)
PROMISE = 0.9
TTFT_FACTOR, TPOT_SLO_S = 5.0, 0.1
DURATION_S, SEEDS = 180.0, 3
WARM_UP = 0.1  # of the duration: the mesh is idle at first, and goodput is that of a mesh at work
INPUT, OUTPUT = Bounds(128, 1024, 8192, 0.8), Bounds(16, 64, 256, 0.6)
SERVICE, PROFILE = "model", "a100-llama2-70b-tp4"
POOL = 2000


@dataclass(frozen=True, slots=True)
class Point:
    """A policy at ``factor`` times its sustainable load. Goodput: requests a second that met both SLOs."""

    policy: str
    factor: float
    rate: float
    num_requests: int
    num_admitted: int
    num_good: int
    refused_after_s: tuple[float, float] | None  # median and 99th percentile; None: nothing was refused

    @property
    def goodput(self) -> float:
        return self.rate * self.num_good / self.num_requests

    @classmethod
    def of(cls, policy: str, factor: float, rate: float, records: Sequence[Record]) -> "Point":
        """Without the requests of the beginning."""
        warm_s = WARM_UP * max(one.arrived_s for one in records)
        warm = [one for one in records if one.arrived_s >= warm_s]
        refused_s = [one.e2e_s or 0.0 for one in warm if one.outcome is not Outcome.FINISHED]
        after_s = (percentile(refused_s, 50), percentile(refused_s, 99)) if refused_s else None
        num_good = sum(one.meets_slo for one in warm)
        return cls(policy, factor, rate, len(warm), len(warm) - len(refused_s), num_good, after_s)

    def cells(self, peak: float) -> Iterator[str]:
        """``peak``: the best goodput of the policy."""
        yield from (self.policy, f"{self.factor:g}", f"{self.rate:.2f}", f"{self.num_admitted / self.num_requests:.0%}")
        yield from (f"{self.num_good / max(1, self.num_admitted):.0%}", f"{self.goodput:.2f}")
        yield f"{self.goodput / peak:.0%}" if peak else "-"
        yield "-" if self.refused_after_s is None else "{:.2f}, {:.2f} s".format(*self.refused_after_s)


def make_topology(policy: str) -> Topology:
    """With the product's own bounds of queues, where other simulated benches have none."""
    roles = {"prefill": Role.PREFILL, "decode": Role.MULTIPLEX}
    engine = EngineSpec("", Role.MULTIPLEX, (SERVICE,), backend="simulated", profile=PROFILE, chunk_tokens=2048)
    engines = tuple(replace(engine, id=name, role=role, max_running=256) for name, role in roles.items())
    service, gateways = ServiceSpec(SERVICE, PROFILE, Slo(1.0, TPOT_SLO_S)), (GatewaySpec("gateway"),)
    return Topology("overload", Path(), (service,), engines, gateways, policy=PolicySpec(policy))


def make_pool() -> list[TraceRequest]:
    """Lengths and promises."""
    random, cost = Random(0), load_profile(PROFILE).prefill
    lengths = [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]
    return [
        replace(one, slo_ttft_s=TTFT_FACTOR * prefill_s(cost, one.num_input), slo_tpot_s=TPOT_SLO_S) for one in lengths
    ]


def served(policy: str, rate: float, duration_s: float, num_seeds: int) -> list[Record]:
    """What became of a policy's requests, once a seed."""
    pool, records = make_pool(), list[Record]()
    for seed in range(num_seeds):
        simulation = make_simulation(make_topology(policy), load_profile(PROFILE), seed, coasts=True)
        records += serve(simulation, SERVICE, synthesize(pool, Arrivals(rate), duration_s, Random(seed)))
    return records


def points(options: argparse.Namespace, policy: str) -> Iterator[Point]:
    """At multiples of the requests a second that it can sustain."""
    how = options.duration, options.seeds
    sustained = find_capacity(lambda rate: attainment(served(policy, rate, *how)), PROMISE, 1.0, 0.04).rate
    for factor in options.factors:
        rate = factor * sustained
        yield Point.of(policy, factor, rate, served(policy, rate, *how))


def main() -> None:
    parser = script_parser("bench.gateway.overload", __doc__)
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, metavar="F", help="of sustainable load")
    parser.add_argument("--duration", type=float, default=DURATION_S, metavar="S", help="of each load (default: 180)")
    add_seeds(parser, SEEDS)
    add_json(parser)
    options = parser.parse_args()
    found = [list(points(options, policy)) for policy in options.policies]
    peaks = [max(point.goodput for point in of_policy) for of_policy in found]
    numbers = ("load", "requests/s", "admitted", "good of these", "goodput/s", "of its peak", "refused after")
    rows = (point.cells(peak) for of_policy, peak in zip(found, peaks, strict=True) for point in of_policy)
    print_table("goodput", ("policy",), numbers, rows)
    if options.json is not None:
        write_json(options.json, [point for of_policy in found for point in of_policy])


if __name__ == "__main__":
    main()
