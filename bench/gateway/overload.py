"""Goodput against load, up to three times what a mesh can sustain: it should stay where it peaked.

    python -m bench.gateway.overload [--policies NAME ...] [--factors F ...] [--duration S] [--seeds N] [--json FILE]

A prefill and a multiplexing engine, A100s with Llama-2-70B and tensor parallelism 4; long inputs, short outputs,
Poisson arrivals; TTFT SLO 5 times the unloaded prefill, TPOT SLO 100 ms. Bounds of queues are the product's own. The
sustainable load of a policy is where 90 % of its requests meet both SLOs; goodput counts those that do. Simulated.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random

from rich.console import Console

from bench.harness.arguments import add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.lengths import Bounds
from bench.simulated import make_simulation, serve
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
class Ended:
    """One request. ``after_s``: from its arrival until it was answered in full, or refused."""

    arrived_s: float
    is_admitted: bool
    is_good: bool
    after_s: float


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
    def of(cls, policy: str, factor: float, rate: float, all_ended: Sequence[Ended]) -> "Point":
        warm_s = WARM_UP * max(one.arrived_s for one in all_ended)
        ended = [one for one in all_ended if one.arrived_s >= warm_s]
        refused = sorted(one.after_s for one in ended if not one.is_admitted)
        return cls(
            policy,
            factor,
            rate,
            len(ended),
            sum(one.is_admitted for one in ended),
            sum(one.is_good for one in ended),
            (_quantile(refused, 0.5), _quantile(refused, 0.99)) if refused else None,
        )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


Serve = Callable[[str, float], list[Ended]]  # what became of a policy's requests at a rate


def make_topology(policy: str) -> Topology:
    roles = {"prefill": Role.PREFILL, "decode": Role.MULTIPLEX}
    engines = [
        EngineSpec(name, role, (SERVICE,), backend="simulated", profile=PROFILE, chunk_tokens=2048, max_running=256)
        for name, role in roles.items()
    ]
    service = ServiceSpec(SERVICE, PROFILE, Slo(1.0, TPOT_SLO_S))
    gateway = GatewaySpec("gateway")
    return Topology("overload", Path(), (service,), tuple(engines), (gateway,), policy=PolicySpec(policy))


def make_pool() -> list[TraceRequest]:
    """Lengths and promises."""
    random, cost = Random(0), load_profile(PROFILE).prefill
    lengths = [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]
    return [
        replace(one, slo_ttft_s=TTFT_FACTOR * prefill_s(cost, one.num_input), slo_tpot_s=TPOT_SLO_S) for one in lengths
    ]


def simulated(pool: Sequence[TraceRequest], duration_s: float, num_seeds: int) -> Serve:
    """Serve in simulation, once a seed."""

    def serve_each(policy: str, rate: float) -> Iterator[Record]:
        for seed in range(num_seeds):
            simulation = make_simulation(make_topology(policy), load_profile(PROFILE), seed, coasts=True)
            yield from serve(simulation, SERVICE, synthesize(pool, Arrivals(rate), duration_s, Random(seed)))

    return lambda policy, rate: [
        Ended(record.arrived_s, record.outcome is Outcome.FINISHED, record.meets_slo, record.e2e_s or 0.0)
        for record in serve_each(policy, rate)
    ]


def sustainable(on: Serve, policy: str) -> float:
    """Requests a second."""

    def attainment(rate: float) -> float:
        ended = on(policy, rate)
        return sum(one.is_good for one in ended) / len(ended)

    return find_capacity(attainment, PROMISE, 1.0, 0.04).rate


def run(options: argparse.Namespace) -> Iterator[Point]:
    on = simulated(make_pool(), options.duration, options.seeds)
    rates = {policy: sustainable(on, policy) for policy in options.policies}
    for policy, factor in product(rates, options.factors):
        rate = factor * rates[policy]
        point = Point.of(policy, factor, rate, on(policy, rate))
        print(f"{policy} at {factor:g} times its load: {point.goodput:.2f} good a second", file=sys.stderr)
        yield point


def show(points: Sequence[Point], console: Console) -> None:
    numbers = ("load", "requests/s", "admitted", "good of these", "goodput/s", "of its peak", "refused after")
    table = make_table("goodput", ("policy",), numbers)
    for point in points:
        peak = max(other.goodput for other in points if other.policy == point.policy)
        table.add_row(
            point.policy,
            f"{point.factor:g}",
            f"{point.rate:.2f}",
            f"{point.num_admitted / point.num_requests:.0%}",
            f"{point.num_good / max(1, point.num_admitted):.0%}",
            f"{point.goodput:.2f}",
            f"{point.goodput / peak:.0%}" if peak else "-",
            "-" if point.refused_after_s is None else "{:.2f}, {:.2f} s".format(*point.refused_after_s),
        )
    console.print(table)


def main() -> None:
    parser = script_parser("bench.gateway.overload", __doc__)
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME")
    parser.add_argument("--factors", type=float, nargs="+", default=FACTORS, metavar="F", help="of sustainable load")
    parser.add_argument("--duration", type=float, default=DURATION_S, metavar="S", help="of each load (default: 180)")
    add_seeds(parser, SEEDS)
    add_json(parser)
    options = parser.parse_args()
    points = list(run(options))
    show(points, make_console())
    if options.json is not None:
        write_json(options.json, points)


if __name__ == "__main__":
    main()
