"""How fast the simulator is: requests and events a second of real time, and peak memory, on one core.

    python -m bench.fidelity.simulation_speed [--engines 64] [--rate 100] [--duration S] [--policy P] [--exact]
        [--records FILE]

The load is made up: lengths with the means and medians of Azure's conversations of 2023 (1155 and 1020 tokens in, 211
and 129 out), Poisson arrivals, on engines that cost what a Llama 2 70B on four A100 costs, three in eight of them for
prefills. ``--duration 3600`` is an hour of 64 engines at 100 requests a second.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from math import log, sqrt
from pathlib import Path
from random import Random

from bench.harness.arguments import script_parser
from engines.costs.profiles import load_profile
from mesh.topology.schema import EngineSpec, GatewaySpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Record, write_records
from router.policies.registry import policies
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.garbage import rare_collections
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload import SloRule
from simulation.reports.summary import Distribution, Summary, summarize

SERVICE = "chat"
PROFILE = "a100-llama2-70b-tp4"
PREFILL_SHARE = 3 / 8
INPUT, OUTPUT = (1020, 1155, 8000), (129, 211, 1000)  # median, mean and most tokens
MIB = 2**20


def topology(num_engines: int, policy: str) -> Topology:
    num_prefill = max(1, round(PREFILL_SHARE * num_engines))
    roles = [Role.PREFILL] * num_prefill + [Role.MULTIPLEX] * (num_engines - num_prefill)
    engines = tuple(
        EngineSpec(f"{role}-{number:03}", role, (SERVICE,), max_running=128, chunk_tokens=2048)
        for number, role in enumerate(roles)
    )
    gateway = GatewaySpec("gateway", max_requests=10**6, max_waiting=10**6)
    service = ServiceSpec(SERVICE, "model", Slo(2.0, 0.1))
    return Topology("speed", Path("speed.toml"), (service,), engines, (gateway,), policy=PolicySpec(policy))


def load(rate: float, duration_s: float, random: Random) -> Iterator[TraceRequest]:
    """Lengths are lognormal."""
    for at_s in Arrivals(rate).times(random):
        if at_s > duration_s:
            return
        yield TraceRequest(at_s, _tokens(*INPUT, random), _tokens(*OUTPUT, random))


def _tokens(median: int, mean: int, most: int, random: Random) -> int:
    drawn = random.lognormvariate(log(median), sqrt(2 * log(mean / median)))
    return min(max(1, round(drawn)), most)


def measure(options: argparse.Namespace) -> None:
    what = topology(options.engines, options.policy)
    profile = load_profile(PROFILE)
    profiles = {engine.id: profile for engine in what.engines}
    coasts = not options.exact
    simulation = Simulation(what, profiles, seed=options.seed, physics=Physics(), slo=SloRule(), coasts=coasts)
    records: list[Record] = []
    trace = load(options.rate, options.duration, Random(f"{options.seed}/load"))
    start = time.process_time()
    with rare_collections():
        simulation.run(SERVICE, trace, records.append)
    print(_report(summarize(what.policy.name, records, None), simulation, time.process_time() - start))
    if options.records is not None:
        write_records(options.records, records)


def _report(summary: Summary, simulation: Simulation, cpu_s: float) -> str:
    num_requests, num_events = summary.num_requests, simulation.kernel.num_events
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    simulated_s = simulation.kernel.now
    return (
        f"{num_requests} requests, {simulated_s:.0f} s simulated in {cpu_s:.1f} s of CPU ({simulated_s / cpu_s:.1f}x): "
        f"{num_requests / cpu_s:.0f} requests/s, {num_events / cpu_s:.0f} events/s, "
        f"{num_events / num_requests:.1f} events a request; peak memory {peak_bytes / MIB:.0f} MiB\n"
        f"attainment {summary.attainment:.4f}; {_milliseconds('TTFT', summary.ttft)}; "
        f"{_milliseconds('TPOT', summary.tpot)}"
    )


def _milliseconds(name: str, of: Distribution | None) -> str:
    assert of is not None, "requests have ended"
    return f"{name} " + ", ".join(f"p{percent} {of.percentile(percent) * 1e3:.1f} ms" for percent in (50, 90, 99))


def main() -> None:
    parser = script_parser("bench.fidelity.simulation_speed", __doc__)
    parser.add_argument("--engines", type=int, default=64, metavar="N")
    parser.add_argument("--rate", type=float, default=100.0, metavar="R", help="requests a second (default: 100)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="S", help="of arrivals (default: 60)")
    parser.add_argument("--policy", choices=sorted(policies()), default="tropical")
    parser.add_argument("--exact", action="store_true", help="compute every step, pass none by")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--records", type=Path, metavar="FILE", help="write what became of each request, to compare")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
