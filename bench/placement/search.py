"""How long the search for a placement takes, by devices and by services.

    python -m bench.placement.search [--devices 8,16,32,64] [--services 4,8,16]
        [--requests-per-service 60] [--rate-per-device 1.5] [--jobs 2] [--seed 0]

Algorithm 1 over all parallelisms: the simulator scores each plan in parts, and the best of each parallelism once more
as a whole. The table has seconds of the clock, and of CPU over all processes. Where other work runs beside the search,
the clock would say CPU over the number of cores.
"""

import argparse
import time
from itertools import product
from random import Random

import psutil

from bench.harness.arguments import add_jobs, number_list, script_parser
from bench.harness.tables import make_console, make_table
from bench.placement import setting
from router.placement.search.search import search
from simulation.placement.evaluator import Simulators

HEADINGS = ("devices", "services", "requests", "simulated", "s", "CPU s", "attainment", "latency")


def main() -> None:
    parser = script_parser("bench.placement.search", __doc__)
    parser.add_argument("--devices", type=number_list, default=(8, 16, 32, 64), metavar="N,...")
    parser.add_argument("--services", type=number_list, default=(4, 8, 16), metavar="N,...")
    parser.add_argument("--requests-per-service", type=float, default=60.0, metavar="N", help="on average")
    parser.add_argument("--rate-per-device", type=float, default=1.5, metavar="R", help="requests a second")
    add_jobs(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args()
    table = make_table("search for a placement", (), HEADINGS)
    with Simulators(options.jobs) as simulators:
        measure(simulators, 1, 1, options)  # workers start
        for num_services, num_devices in product(options.services, options.devices):
            table.add_row(*measure(simulators, num_devices, num_services, options))
    make_console().print(table)


def measure(simulators: Simulators, num_devices: int, num_services: int, options: argparse.Namespace) -> list[str]:
    """A row of the table."""
    models = setting.services(num_services, setting.MODELS if num_devices >= 4 else setting.MODELS[:1])
    catalogue, rate = setting.catalogue(models), options.rate_per_device * num_devices
    span_s = options.requests_per_service * num_services / rate
    asked = setting.traffic(list(models), rate, span_s, Random(f"{options.seed}/traffic"))
    slos = dict.fromkeys(models, setting.SLO)
    started_s, started_cpu_s = time.perf_counter(), _cpu_s()
    evaluator = simulators.evaluator(catalogue, asked, slos, slo_factor=setting.SLO_FACTOR, seed=options.seed)
    found = search(setting.cluster(num_devices), catalogue, asked, evaluator, Random(options.seed), lambda _: True)
    times = (time.perf_counter() - started_s, _cpu_s() - started_cpu_s)
    num_requests = sum(len(service.requests) for service in asked.services.values())
    counts = (num_devices, num_services, num_requests, evaluator.num_simulated)
    score = found.best.score
    scores = (f"{score.attainment:.3f}", f"{score.normalized_latency:.2f}")
    return [*map(str, counts), *(f"{seconds:.1f}" for seconds in times), *scores]


def _cpu_s() -> float:
    """CPU time of this process and its workers."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


if __name__ == "__main__":
    main()
