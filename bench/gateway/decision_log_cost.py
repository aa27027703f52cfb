"""What it costs a gateway to remember requests that ended: dispatch, acceptance and end with memory, and without it.

    python -m bench.gateway.decision_log_cost [--engines N ...] [--requests N] [--runs N]

With and without take turns; the median of the runs' medians counts.
"""

import statistics
import time
from random import Random

from bench.harness.arguments import script_parser
from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.requests import Accepted, Delta, Epoch, FinishReason, RequestSpec, Sampling, StepTokens
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from router.effects import SendToEngine
from router.history.timelines import TimelineReaders, Timelines
from router.policies.registry import make_policy
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor

SERVICE = ServiceStatus("service", 1000, 1000, 16, PrefillCost(0.0, 0.001), DecodeCost(0.01, 0.0))
LIMITS = DispatchLimits(max_requests=1024, max_waiting=512, reply_s=1.0)
WARM_UP = 1000  # requests


def status(seq: int, role: Role) -> EngineStatus:
    return EngineStatus(seq, ProcessState.READY, role, "local", 1, [SERVICE], 0, 0, 0, 0.0, 0.0, 0.01, None)


def measure(num_engines: int, num_requests: int, timelines: Timelines) -> float:
    """Median microseconds of a request."""
    dispatcher = Dispatcher(make_policy(PolicySpec(), Random(0)), Monitor(lease_s=1e9), LIMITS, timelines)
    for index in range(num_engines):
        role = Role.PREFILL if index % 2 else Role.MULTIPLEX
        dispatcher.observe(Sender(f"engine-{index}", 1), status(index, role), 0.0)
    times = []
    for index in range(WARM_UP + num_requests):
        now, id_ = index * 0.01, f"r{index}"
        spec = RequestSpec(id_, "gateway", "service", [1] * 100, Sampling(max_tokens=16, seed=7), 1.0, 0.1)
        started = time.perf_counter()
        effects = dispatcher.submit(spec, timelines.arrived(spec, now), now)
        engine = next(effect.to for effect in effects if isinstance(effect, SendToEngine))
        dispatcher.receive(engine, Accepted(id_, Epoch(0), index), now)
        dispatcher.receive(engine, StepTokens([Delta(id_, Epoch(0), 0, [1], FinishReason.STOP)]), now)
        times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:]) * 1e6


def main() -> None:
    parser = script_parser("bench.gateway.decision_log_cost", __doc__)
    parser.add_argument("--engines", type=int, nargs="+", default=[4, 64, 512])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3, help="the medians' median counts; with and without take turns")
    options = parser.parse_args()
    print("| engines in view | without, us | with, us |\n|---|---|---|")
    for engines in options.engines:
        runs = [
            [
                measure(engines, options.requests, Timelines(TimelineReaders(), kept_requests=0, kept_engines=0)),
                measure(engines, options.requests, Timelines()),
            ]
            for _ in range(options.runs)
        ]
        without, with_log = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {engines} | {without:.0f} | {with_log:.0f} |", flush=True)


if __name__ == "__main__":
    main()
