"""Goodput against load, up to three times what a mesh can sustain: it should stay where it peaked.

    python -m bench.gateway.overload [--live] [--policies NAME ...] [--factors F ...] [--duration S] [--seeds N]
        [--json FILE]

A prefill and a multiplexing engine, A100s with Llama-2-70B and tensor parallelism 4; long inputs, short outputs,
Poisson arrivals; TTFT SLO 5 times the unloaded prefill, TPOT SLO 100 ms. Bounds of queues are the product's own. The
sustainable load of a policy is where 90 % of its requests meet both SLOs, by simulation; goodput counts those that do.
With ``--live`` real processes serve the same requests over HTTP, on engines that wait as long as the hardware would
compute.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.harness.arguments import add_json, add_seeds, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.lengths import Bounds
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.ports import free_port
from bench.live.serving import OK, is_kept, sendings_of
from bench.models.tiny_llama import write_tiny_model
from bench.simulated import make_simulation, serve
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import PolicySpec, Topology
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
PROFILE = "a100-llama2-70b-tp4"
ENGINE = f'backend = "simulated"\nprofile = "{PROFILE}"\nchunk_tokens = 2048'
NUM_TOKEN_IDS = 250  # of the tiny model
MAX_CONTEXT = 16_384
POOL = 2000
TOPOLOGY = """\
[mesh]
name = "overload"
log_level = "warning"
[services.model]
model = "{model}"
ttft_ms = 1000
min_ttft_ms = 1
tpot_ms = 100
min_tpot_ms = 1
[engines.prefill]
role = "prefill"
{engine}
[engines.decode]
role = "multiplex"
{engine}
max_running = 256
[gateways.gateway]
port = {port}
"""


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


Pool = Sequence[TraceRequest]  # lengths and promises
Serve = Callable[[str, float], list[Ended]]  # what became of a policy's requests at a rate


def make_pool() -> list[TraceRequest]:
    """Lengths and promises."""
    random, cost = Random(0), load_profile(PROFILE).prefill
    lengths = [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]
    return [
        replace(one, slo_ttft_s=TTFT_FACTOR * prefill_s(cost, one.num_input), slo_tpot_s=TPOT_SLO_S) for one in lengths
    ]


def make_trace(pool: Pool, rate: float, duration_s: float, seed: int) -> list[TraceRequest]:
    return list(synthesize(pool, Arrivals(rate), duration_s, Random(seed)))


def simulated(topology: Topology, pool: Pool, duration_s: float, num_seeds: int) -> Serve:
    """Serve in simulation, once a seed."""

    def serve_each(policy: str, rate: float) -> Iterator[Record]:
        chosen = replace(topology, policy=PolicySpec(policy))
        for seed in range(num_seeds):
            simulation = make_simulation(chosen, load_profile(PROFILE), seed, coasts=True)
            yield from serve(simulation, "model", make_trace(pool, rate, duration_s, seed))

    return lambda policy, rate: [
        Ended(record.arrived_s, record.outcome is Outcome.FINISHED, record.meets_slo, record.e2e_s or 0.0)
        for record in serve_each(policy, rate)
    ]


def live(mesh: LiveMesh, pool: Pool, duration_s: float) -> Serve:
    """Serve on a mesh that runs."""

    def served(policy: str, rate: float) -> list[Ended]:
        mesh.use(PolicySpec(policy))
        trace = make_trace(pool, rate, duration_s, seed=0)
        answers = mesh.answers(sendings_of(trace, Random(f"{policy} {rate}"), range(NUM_TOKEN_IDS)))
        return [
            Ended(one.at_s, answer.status == OK, is_kept(one, answer), answer.last_s - answer.sent_s)
            for one, answer in zip(trace, answers, strict=True)
        ]

    return served


def sustainable(on: Serve, policy: str) -> float:
    """Requests a second."""

    def attainment(rate: float) -> float:
        ended = on(policy, rate)
        return sum(one.is_good for one in ended) / len(ended)

    return find_capacity(attainment, PROMISE, 1.0, 0.04).rate


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


@contextmanager
def topology_file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder) / "model", max_context=MAX_CONTEXT)
        path = Path(folder) / "overload.toml"
        path.write_text(TOPOLOGY.format(model=model, engine=ENGINE, port=free_port()))
        yield path


def run(options: argparse.Namespace) -> list[Point]:
    pool, points = make_pool(), []
    with ExitStack() as stack:
        path = stack.enter_context(topology_file())
        in_simulation = on = simulated(
            load(path), pool, DURATION_S if options.live else options.duration, options.seeds
        )
        rates = {policy: sustainable(in_simulation, policy) for policy in options.policies}
        if options.live:
            on = live(stack.enter_context(live_mesh(path)), pool, options.duration)
        for policy, factor in product(rates, options.factors):
            rate = factor * rates[policy]
            points.append(Point.of(policy, factor, rate, on(policy, rate)))
            print(f"{policy} at {factor:g} times its load: {points[-1].goodput:.2f} good a second", file=sys.stderr)
    return points


def main() -> None:
    parser = script_parser("bench.gateway.overload", __doc__)
    parser.add_argument("--live", action="store_true", help="real processes instead of a simulation")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="NAME")
    parser.add_argument(
        "--factors", type=float, nargs="+", default=FACTORS, metavar="F", help="of the sustainable load"
    )
    parser.add_argument("--duration", type=float, default=DURATION_S, metavar="S", help="of each load (default: 180)")
    add_seeds(parser, SEEDS)
    add_json(parser)
    options = parser.parse_args()
    try:
        points = run(options)
    except UserError as error:
        raise SystemExit(str(error)) from None
    show(points, make_console())
    if options.json is not None:
        write_json(options.json, points)


if __name__ == "__main__":
    main()
