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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.http_load import Answer, Sending
from bench.live.lengths import Bounds
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.ports import free_port
from bench.live.serving import OK, latency_of
from bench.models.tiny_llama import write_tiny_model
from engines.costs.linear import prefill_s
from engines.costs.profiles import load_profile
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import PolicySpec, Topology
from router.history.records import Outcome, Record
from simulation.capacity import find_capacity
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule

POLICIES = ("tropical", "elastic")
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
LIVE_FACTORS = (0.5, 1.0, 2.0, 3.0)
PROMISE, KEPT_OF_PEAK = 0.9, 0.9
TTFT_FACTOR, TPOT_SLO_S = 5.0, 0.1
DURATION_S, LIVE_DURATION_S, SEEDS = 180.0, 60.0, 3
WARM_UP = 0.1  # of the duration: the mesh is idle at first, and goodput is that of a mesh at work
INPUT, OUTPUT = Bounds(128, 1024, 8192, 0.8), Bounds(16, 64, 256, 0.6)
PROFILE = "a100-llama2-70b-tp4"
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
backend = "simulated"
profile = "{profile}"
chunk_tokens = 2048
[engines.decode]
role = "multiplex"
backend = "simulated"
profile = "{profile}"
chunk_tokens = 2048
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
    refused_after_p50_s: float | None  # None: nothing was refused
    refused_after_p99_s: float | None

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
            _quantile(refused, 0.5),
            _quantile(refused, 0.99),
        )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[round(share * (len(ordered) - 1))] if ordered else None


# --- the load ---------------------------------------------------------------------------------------------------------


def make_pool() -> list[TraceRequest]:
    """Lengths and promises."""
    random, cost = Random(0), load_profile(PROFILE).prefill
    lengths = [(INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]
    return [
        TraceRequest(
            0.0, num_input, num_output, slo_ttft_s=TTFT_FACTOR * prefill_s(cost, num_input), slo_tpot_s=TPOT_SLO_S
        )
        for num_input, num_output in lengths
    ]


def make_trace(pool: Sequence[TraceRequest], rate: float, duration_s: float, seed: int) -> list[TraceRequest]:
    return list(synthesize(pool, Arrivals(rate), duration_s, Random(seed)))


# --- simulated --------------------------------------------------------------------------------------------------------


def simulate(topology: Topology, policy: str, trace: Iterable[TraceRequest], seed: int) -> list[Ended]:
    records: list[Record] = []
    profiles = {engine.id: load_profile(PROFILE) for engine in topology.engines}
    chosen = replace(topology, policy=PolicySpec(policy))
    simulation = Simulation(chosen, profiles, seed=seed, physics=Physics(), slo=SloRule(), coasts=True)
    simulation.run("model", trace, records.append)
    return [_ended(record) for record in records]


def _ended(record: Record) -> Ended:
    return Ended(record.arrived_s, record.outcome is Outcome.FINISHED, record.meets_slo, record.e2e_s or 0.0)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Measures points by simulation, over several seeds."""

    topology: Topology
    pool: Sequence[TraceRequest]
    duration_s: float
    num_seeds: int

    def sustainable(self, policy: str) -> float:
        """Requests a second."""

        def attainment(rate: float) -> float:
            ended = self.ended(policy, rate)
            return sum(one.is_good for one in ended) / len(ended)

        return find_capacity(attainment, PROMISE, 1.0, 0.04).rate

    def ended(self, policy: str, rate: float) -> list[Ended]:
        traces = ((seed, make_trace(self.pool, rate, self.duration_s, seed)) for seed in range(self.num_seeds))
        return [one for seed, trace in traces for one in simulate(self.topology, policy, trace, seed)]


# --- live -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Live:
    """Measures points on a mesh that runs."""

    mesh: LiveMesh
    pool: Sequence[TraceRequest]
    duration_s: float

    def ended(self, policy: str, rate: float) -> list[Ended]:
        self.mesh.use(PolicySpec(policy))
        trace, random = make_trace(self.pool, rate, self.duration_s, seed=0), Random(f"{policy} {rate}")
        sendings = [_sending(request, random) for request in trace]
        answers = self.mesh.answers(sendings)
        return [_answered(request, answer) for request, answer in zip(trace, answers, strict=True)]


def _sending(request: TraceRequest, random: Random) -> Sending:
    prompt = random.choices(range(NUM_TOKEN_IDS), k=request.num_input)
    return Sending(request.at_s, prompt, request.num_output, request.slo_ttft_s, request.slo_tpot_s)


def _answered(request: TraceRequest, answer: Answer) -> Ended:
    if answer.status != OK:
        return Ended(request.at_s, is_admitted=False, is_good=False, after_s=answer.last_s - answer.sent_s)
    latency = latency_of(answer, request.num_output)
    kept_ttft = latency.ttft_s <= (request.slo_ttft_s or inf)
    kept_tpot = latency.tpot_s is None or latency.tpot_s <= (request.slo_tpot_s or inf)
    return Ended(request.at_s, is_admitted=True, is_good=kept_ttft and kept_tpot, after_s=latency.e2e_s)


# --- what is shown ----------------------------------------------------------------------------------------------------


def measure(
    on: Simulated | Live, sustainable: dict[str, float], factors: Sequence[float], console: Console
) -> Iterator[Point]:
    for policy, rate in sustainable.items():
        for factor in factors:
            point = Point.of(policy, factor, factor * rate, on.ended(policy, factor * rate))
            console.print(f"{policy} at {factor:g} times its load: {point.goodput:.2f} good requests a second")
            yield point


def peaks(points: Iterable[Point]) -> dict[str, float]:
    """The highest goodput by policy."""
    found: dict[str, float] = {}
    for point in points:
        found[point.policy] = max(point.goodput, found.get(point.policy, 0.0))
    return found


def show(points: Sequence[Point], console: Console) -> None:
    numbers = ("load", "requests/s", "admitted", "good of these", "goodput/s", "of its peak", "refused after")
    table = make_table("goodput", ("policy",), numbers)
    highest = peaks(points)
    for point in points:
        table.add_row(
            point.policy,
            f"{point.factor:g}",
            f"{point.rate:.2f}",
            f"{point.num_admitted / point.num_requests:.0%}",
            f"{point.num_good / max(1, point.num_admitted):.0%}",
            f"{point.goodput:.2f}",
            f"{point.goodput / highest[point.policy]:.0%}" if highest[point.policy] else "-",
            _refused_after(point),
        )
    console.print(table)
    for policy, peak in highest.items():
        last = max((point for point in points if point.policy == policy), key=lambda point: point.factor)
        verdict = "kept" if last.goodput >= KEPT_OF_PEAK * peak else "NOT kept"
        console.print(f"{policy}: {last.goodput / peak:.0%} of its peak at {last.factor:g} times its load: {verdict}")


def _refused_after(point: Point) -> str:
    if point.refused_after_p50_s is None or point.refused_after_p99_s is None:
        return "-"
    return f"{point.refused_after_p50_s:.2f}, {point.refused_after_p99_s:.2f} s"


# --- the command ------------------------------------------------------------------------------------------------------


@contextmanager
def topology_file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        model = write_tiny_model(Path(folder) / "model", max_context=MAX_CONTEXT)
        path = Path(folder) / "overload.toml"
        path.write_text(TOPOLOGY.format(model=model, profile=PROFILE, port=free_port()))
        yield path


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.gateway.overload", __doc__)
    parser.add_argument("--live", action="store_true", help="real processes instead of a simulation")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), metavar="NAME")
    parser.add_argument("--factors", type=float, nargs="+", metavar="F", help="times the sustainable load")
    parser.add_argument(
        "--duration", type=float, metavar="S", help=f"of each load (default: {DURATION_S:g}, {LIVE_DURATION_S:g} live)"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"of simulations (default: {SEEDS})")
    add_json(parser)
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    console, pool = make_console(), make_pool()
    with topology_file() as path:
        duration_s = DURATION_S if options.live else options.duration or DURATION_S
        simulated = Simulated(load(path), pool, duration_s, options.seeds)
        sustainable = {policy: simulated.sustainable(policy) for policy in options.policies}
        for policy, rate in sustainable.items():
            console.print(f"{policy} sustains {rate:.2f} requests a second")
        if options.live:
            with live_mesh(path) as mesh:
                live = Live(mesh, pool, options.duration or LIVE_DURATION_S)
                points = list(measure(live, sustainable, options.factors or LIVE_FACTORS, console))
        else:
            points = list(measure(simulated, sustainable, options.factors or FACTORS, console))
    show(points, console)
    if options.json is not None:
        write_json(options.json, points)


def main() -> None:
    try:
        run(_arguments())
    except UserError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
