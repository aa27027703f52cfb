"""What placement search forecasts of a plan while queues stand before engines, and what the plan then brings.

    python -m bench.placement.forecast [--seeds 3] [--rate 1.2] [--after 30,60,120]

The simulated mesh of `bench.placement.mesh`, without a daemon: it keeps the plan for what came before a shift, and
queues grow. So many seconds after the shift, the plan is scored for the rates that come, as a search does, once as if
engines were empty and once with the requests that wait. Achieved is what became of those that arrived in the 120 s from
then on.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from bench.harness.arguments import add_seeds, number_list, script_parser
from bench.harness.tables import make_console, make_table
from bench.placement import mesh
from bench.placement.shift import Served, served_of
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus
from router.history.records import Record
from router.placement.observe.bursts import WINDOW_S
from router.placement.observe.running_mesh import present_plan, waiting
from router.placement.observe.service_monitor import ServiceMonitor
from router.placement.observe.traffic import Traffic
from router.placement.search.question import make_question
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.workload import SloRule
from simulation.placement.evaluator import LocalSimulators
from simulation.quiet import quiet_engines

SHIFT_AT_S, HORIZON_S = 60.0, 120.0
BUSIEST, OTHERS = mesh.SERVICES[0], mesh.SERVICES[1:]
FOR_BEFORE: mesh.Held = [(BUSIEST, other) for other in OTHERS]  # the busiest service everywhere, the others once each


class Pair(NamedTuple):
    attainment: float
    latency: float  # normalised


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one moment, ``after_s`` the shift."""

    seed: int
    after_s: float
    num_waiting: int
    empty: Pair
    queued: Pair
    achieved: Pair


def forecasts(rate: float, seed: int, after: Sequence[float]) -> list[Forecast]:
    span_s = SHIFT_AT_S + max(after) + HORIZON_S
    load = mesh.Load(rate, span_s, seed, shift_at_s=SHIFT_AT_S)
    what = mesh.topology(FOR_BEFORE, None)
    simulation = Simulation(what, mesh.profiles(what), seed=seed, physics=Physics(), slo=SloRule(), coasts=True)
    monitor, records = ServiceMonitor(0.0, WINDOW_S), list[Record]()
    seen: dict[float, Mapping[str, int]] = {}

    def hear(sender: Sender, status: GatewayStatus) -> None:
        monitor.observe(sender, status, simulation.kernel.now)

    simulation.network.watch("forecast", GatewayStatus, hear)

    def look(after_s: float) -> None:
        statuses = [engine.core.status(simulation.kernel.now) for engine in simulation.engines.values()]
        seen[after_s] = waiting(monitor.present(), statuses)

    for after_s in after:
        simulation.kernel.at(SHIFT_AT_S + after_s, look, after_s)
    with rare_collections(), quiet_engines():
        simulation.run(BUSIEST, load.trace(), records.append)
    served = served_of(records)
    return [
        Forecast(seed, after_s, sum(queue.values()), *_scores(load, queue), _achieved(served, SHIFT_AT_S + after_s))
        for after_s, queue in seen.items()
    ]


def mean_error(made: Sequence[Forecast], which: str) -> Pair:
    """Of the forecasts that are so called, in absolute value."""
    pairs = [zip(getattr(one, which), one.achieved, strict=True) for one in made]
    return Pair(*(fmean(errors) for errors in zip(*([abs(a - b) for a, b in pair] for pair in pairs), strict=True)))


def _in_short(pair: Pair) -> str:
    return f"{pair.attainment:.3f}, {pair.latency:.2f}"


def _scores(load: mesh.Load, queue: Mapping[str, int]) -> tuple[Pair, Pair]:
    """Scores of the plan as if engines were empty, and with the queue."""
    statuses = mesh.statuses(mesh.topology(FOR_BEFORE, None))
    plan, slos = present_plan(statuses), dict.fromkeys(mesh.SERVICES, mesh.SLO)
    asked = mesh.observed(load.rates(load.next_busiest))
    question = make_question(0, plan, statuses.values(), asked, slos)

    def scored(waiting: Mapping[str, int]) -> Pair:
        drawn = Traffic(HORIZON_S, question.asked.services).drawn_anew(load.seed).with_waiting(waiting)
        [score] = LocalSimulators().evaluator(question.catalogue, drawn, slos).exact([plan])
        return Pair(score.attainment, score.normalized_latency)

    return scored({}), scored(queue)


def _achieved(served: Sequence[Served], since_s: float) -> Pair:
    those = [one for one in served if since_s <= one.at_s < since_s + HORIZON_S]
    return Pair(fmean(one.is_in_time for one in those), fmean(one.latency for one in those))


def main() -> int:
    parser = script_parser("bench.placement.forecast", __doc__)
    parser.add_argument("--rate", type=float, default=1.2, metavar="R", help="requests a second (default: 1.2)")
    add_seeds(parser, 3)
    parser.add_argument("--after", type=number_list, default=(30, 60, 120), metavar="S,S", help="the shift")
    options = parser.parse_args()
    headings = ("seed", "s after", "waiting", "as if empty", "with who waits", "achieved")
    table = make_table("attainment and normalised latency", (), headings)
    made = [one for seed in range(options.seeds) for one in forecasts(options.rate, seed, options.after)]
    for one in made:
        pairs = map(_in_short, (one.empty, one.queued, one.achieved))
        table.add_row(str(one.seed), f"{one.after_s:.0f}", str(one.num_waiting), *pairs)
    table.add_section()
    table.add_row("", "", "off by", *(_in_short(mean_error(made, which)) for which in ("empty", "queued")), "")
    make_console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
