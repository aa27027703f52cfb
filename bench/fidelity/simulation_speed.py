"""How fast the simulator is: requests and events a second of real time, and peak memory, on one core.

    python -m bench.fidelity.simulation_speed [--engines 64] [--rate 100] [--duration S] [--policy P]

The load is made up. Lengths have the means and medians of Azure's conversations of 2023 (1155 and 1020 tokens in, 211
and 129 out), and arrivals are Poisson. Engines cost what a Llama 2 70B on four A100 costs, and three in eight of them
are for prefills. ``--duration 3600`` is an hour of 64 engines at 100 requests a second.

No record is kept: they become percentiles and a digest. Two versions of the simulator that print the same digest
simulated the same, to the last bit of every latency.
"""

import argparse
import resource
import time
from array import array
from collections.abc import Iterator
from hashlib import sha256
from itertools import takewhile
from math import log, sqrt
from random import Random

from bench.harness.arguments import script_parser
from bench.simulated import make_fleet, make_simulation, percentile, serve_each
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import EngineSpec, PolicySpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from router.history.records import Record, encode_line
from router.policies.registry import policies
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest

SERVICE = "chat"
PROFILE = "a100-llama2-70b-tp4"
PREFILL_SHARE = 3 / 8
INPUT, OUTPUT = (1020, 1155, 8000), (129, 211, 1000)  # median, mean and most tokens
PERCENTS = 50, 90, 99
MIB = 2**20


def topology(num_engines: int, policy: str) -> Topology:
    num_prefill = max(1, round(PREFILL_SHARE * num_engines))
    roles = [Role.PREFILL] * num_prefill + [Role.MULTIPLEX] * (num_engines - num_prefill)
    engines = tuple(
        EngineSpec(f"{role}-{number:03}", role, (SERVICE,), max_running=128, chunk_tokens=2048)
        for number, role in enumerate(roles)
    )
    return make_fleet("speed", ServiceSpec(SERVICE, "model", Slo(2.0, 0.1)), engines, PolicySpec(policy))


def load(rate: float, duration_s: float, random: Random) -> Iterator[TraceRequest]:
    """Lengths are lognormal."""
    for at_s in takewhile(lambda at_s: at_s <= duration_s, Arrivals(rate).times(random)):
        yield TraceRequest(at_s, _tokens(*INPUT, random), _tokens(*OUTPUT, random))


def _tokens(median: int, mean: int, most: int, random: Random) -> int:
    drawn = random.lognormvariate(log(median), sqrt(2 * log(mean / median)))
    return min(max(1, round(drawn)), most)


class Folded:
    """What is kept of records: 24 bytes each."""

    def __init__(self) -> None:
        self.num = 0
        self.latencies_s = {"TTFT": array("d"), "TPOT": array("d"), "end to end": array("d")}
        self._sha = sha256()

    @property
    def digest(self) -> str:
        """The same for the same records in the same order."""
        return self._sha.hexdigest()[:16]

    def add(self, record: Record) -> None:
        self.num += 1
        self._sha.update(encode_line(record))
        for kept, latency_s in zip(
            self.latencies_s.values(), (record.ttft_s, record.tpot_s, record.e2e_s), strict=True
        ):
            if latency_s is not None:
                kept.append(latency_s)

    def percentiles(self) -> str:
        """Return a line about each kind of latency."""
        lines = []
        for name, kept in self.latencies_s.items():
            values = [f"p{percent} {1000 * percentile(kept, percent):.2f}" for percent in PERCENTS if kept]
            lines.append(f"{name} ms: {', '.join(values)}")
        return "\n".join(lines)


def report(options: argparse.Namespace) -> None:
    what, folded = topology(options.engines, options.policy), Folded()
    simulation = make_simulation(what, load_profile(PROFILE), options.seed, coasts=True)
    requests = load(options.rate, options.duration, Random(f"{options.seed}/load"))
    start = time.process_time()
    serve_each(simulation, SERVICE, requests, folded.add)
    cpu_s, simulated_s = time.process_time() - start, simulation.kernel.now
    num_requests, num_events = folded.num, simulation.kernel.num_events
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{num_requests} requests, {simulated_s:.0f} s simulated in {cpu_s:.1f} s of CPU ({simulated_s / cpu_s:.1f}x): "
        f"{num_requests / cpu_s:.0f} requests/s, {num_events / cpu_s:.0f} events/s, "
        f"{num_events / num_requests:.1f} events a request; peak memory {peak_bytes / MIB:.0f} MiB"
    )
    print(folded.percentiles())
    print(f"digest {folded.digest}")


def main() -> None:
    parser = script_parser("bench.fidelity.simulation_speed", __doc__)
    parser.add_argument("--engines", type=int, default=64, metavar="N")
    parser.add_argument("--rate", type=float, default=100.0, metavar="R", help="requests a second (default: 100)")
    parser.add_argument("--duration", type=float, default=60.0, metavar="S", help="of arrivals (default: 60)")
    parser.add_argument("--policy", choices=sorted(policies()), default="tropical")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    report(parser.parse_args())


if __name__ == "__main__":
    main()
