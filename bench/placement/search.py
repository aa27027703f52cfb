"""How long the search for a placement takes, by devices and by services.

    python -m bench.placement.search [--devices 8,16,32,64] [--services 4,8,16] [--out DIR]
        [--requests-per-service 60] [--rate-per-device 1.5] [--improve-s 0] [--jobs 2] [--seed 0]

Algorithm 1 over all parallelisms, each plan scored by the simulator in parts, the best of each parallelism once more
as a whole; then local search for ``--improve-s`` seconds. Seconds of the clock and of CPU over all processes: where
other work runs beside it, CPU over the number of cores is what the clock would say.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import psutil
from rich.table import Table

from bench.harness.arguments import add_jobs, script_parser
from bench.harness.files import write_json
from bench.harness.plots import new_figure, save, tidy
from bench.harness.tables import make_console, make_table
from bench.placement import setting
from router.placement.search.search import FoundPlan, search
from simulation.command.outputs import has_matplotlib
from simulation.placement.evaluator import Simulators


@dataclass(frozen=True, slots=True)
class Case:
    num_devices: int
    num_services: int
    requests_per_service: float
    rate_per_device: float
    improve_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Line:
    """One search. ``elapsed_s`` is of the clock, ``cpu_s`` of all processes."""

    num_devices: int
    num_services: int
    num_requests: int
    num_simulated: int
    elapsed_s: float
    cpu_s: float
    greedy_attainment: float
    greedy_latency: float
    attainment: float
    latency: float
    num_homeless: int


def main() -> None:
    parser = script_parser("bench.placement.search", __doc__)
    parser.add_argument("--devices", type=_numbers, default=(8, 16, 32, 64), metavar="N,...")
    parser.add_argument("--services", type=_numbers, default=(4, 8, 16), metavar="N,...")
    parser.add_argument("--requests-per-service", type=float, default=60.0, metavar="N", help="on average")
    parser.add_argument("--rate-per-device", type=float, default=1.5, metavar="R", help="requests a second")
    parser.add_argument("--improve-s", type=float, default=0.0, metavar="S", help="of local search")
    add_jobs(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write lines.json and search_time there")
    options = parser.parse_args()
    with Simulators(options.jobs) as simulators:
        measure(simulators, Case(1, 1, 1, 1.0, 0.0, 0))  # workers start
        lines = [measure(simulators, case) for case in _cases(options)]
    make_console().print(_table(lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "lines.json", [asdict(o) for o in lines])
        if has_matplotlib():
            plot(options.out / "search_time", lines)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for num_services in options.services:
        for num_devices in options.devices:
            yield Case(
                num_devices,
                num_services,
                options.requests_per_service,
                options.rate_per_device,
                options.improve_s,
                options.seed,
            )


def measure(simulators: Simulators, case: Case) -> Line:
    """Local search may use the time that is asked for, from the end of the greedy one on."""
    models = setting.services(case.num_services)
    if case.num_devices < 4:
        models = setting.services(case.num_services, setting.MODELS[:1])
    catalogue, rate = setting.catalogue(models), case.rate_per_device * case.num_devices
    span_s = case.requests_per_service * case.num_services / rate
    asked = setting.traffic(list(models), rate, span_s, Random(f"{case.seed}/traffic"))
    slos = dict.fromkeys(models, setting.SLO)
    started_s, cpu_s = time.perf_counter(), _cpu_s()
    evaluator = simulators.evaluator(catalogue, asked, slos, slo_factor=setting.SLO_FACTOR, seed=case.seed)
    budget = _Budget(case.improve_s)
    found = search(setting.cluster(case.num_devices), catalogue, asked, evaluator, Random(case.seed), budget)
    elapsed_s, cpu_s = time.perf_counter() - started_s, _cpu_s() - cpu_s
    num_requests = sum(len(service.requests) for service in asked.services.values())
    return _line(case, found, num_requests, evaluator.num_simulated, elapsed_s, cpu_s)


class _Budget:
    """Over so many seconds after it is asked first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None

    def __call__(self, num_batches: int) -> bool:
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        return time.monotonic() >= self._until


def _cpu_s() -> float:
    """Of this process and its workers."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


def _line(case: Case, found: FoundPlan, num_requests: int, num_simulated: int, elapsed_s: float, cpu_s: float) -> Line:
    greedy, best = found.greedy.score, found.best.score
    return Line(
        case.num_devices,
        case.num_services,
        num_requests,
        num_simulated,
        elapsed_s,
        cpu_s,
        greedy.attainment,
        greedy.normalized_latency,
        best.attainment,
        best.normalized_latency,
        len(found.homeless),
    )


def _table(lines: Sequence[Line]) -> Table:
    headings = ("devices", "services", "requests", "simulated", "s", "CPU s", "greedy", "latency", "found", "latency")
    table = make_table("search for a placement", (), headings)
    for line in lines:
        table.add_row(
            str(line.num_devices),
            str(line.num_services),
            str(line.num_requests),
            str(line.num_simulated),
            f"{line.elapsed_s:.1f}",
            f"{line.cpu_s:.1f}",
            f"{line.greedy_attainment:.3f}",
            f"{line.greedy_latency:.2f}",
            f"{line.attainment:.3f}",
            f"{line.latency:.2f}",
        )
    return table


def plot(path: Path, lines: Sequence[Line]) -> Path:
    """CPU seconds against devices, a curve for each number of services."""
    figure = new_figure(5, 3.2)
    axes = figure.subplots()
    for num_services in sorted({line.num_services for line in lines}):
        curve = sorted((line.num_devices, line.cpu_s) for line in lines if line.num_services == num_services)
        axes.plot(*zip(*curve, strict=True), marker="o", label=f"{num_services} services")
    axes.set_xlabel("devices")
    axes.set_ylabel("search, CPU seconds")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    tidy(axes, has_legend=True)
    return save(figure, path)


if __name__ == "__main__":
    main()
