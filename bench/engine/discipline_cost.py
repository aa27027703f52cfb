"""What it costs an engine to decide whose turn it is: CPU time of its core for a decode step, by discipline.

    python -m bench.engine.discipline_cost [--requests 100] [--waiting 64] [--steps 300]

One service has the requests that decode, another one those that wait, if its turn does not come. The core plans a step
and books its result; nothing is computed. Medians and 99th percentiles of this thread's CPU time.
Disciplines with turns alternate between the services.
"""

import gc
import time
from collections.abc import Iterator

from bench.engine.one_engine import Model, OneEngine
from bench.harness.arguments import script_parser
from bench.harness.tables import make_console, make_table
from engines.costs.profiles import load_profile
from engines.scheduling.scheduler import Limits
from mesh.topology.schema import Scheduling
from simulation.loads.trace_request import TraceRequest
from simulation.quiet import quiet_engines

MODELS = {
    name: Model(load_profile(preset).cost, 10**6)
    for name, preset in {"chat": "a100-llama2-7b-tp1", "summary": "a100-llama2-13b-tp1"}.items()
}
PROMPT, ANSWER = 512, 10**5
WARM_UP = 50  # steps, beyond one for each prompt


def main() -> int:
    parser = script_parser("bench.engine.discipline_cost", __doc__)
    parser.add_argument("--requests", type=int, default=100, metavar="N", help="that decode (default: 100)")
    parser.add_argument("--waiting", type=int, default=64, metavar="N", help="of the other service (default: 64)")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="to measure (default: 300)")
    options = parser.parse_args()
    title = f"deciding on a step: {options.requests} requests of one service, {options.waiting} of another"
    table = make_table(title, ("discipline",), ("median, ms", "p99, ms"))
    for scheduling in Scheduling:
        times = sorted(_times_s(scheduling, options.requests, options.waiting, options.steps))
        row = (f"{1e3 * times[share * len(times) // 100]:.2f}" for share in (50, 99))
        table.add_row(scheduling, *row)
    make_console().print(table)
    return 0


def _times_s(scheduling: Scheduling, num_requests: int, num_waiting: int, num_steps: int) -> Iterator[float]:
    """CPU seconds of each step."""
    engine = OneEngine(MODELS, Limits(num_requests, PROMPT), scheduling)
    now = 0.0
    with quiet_engines():
        for service, num in zip(MODELS, (num_requests, num_waiting), strict=True):
            for _ in range(num):
                engine.submit(TraceRequest(now, PROMPT, ANSWER, service=service))
        for _ in range(num_requests + num_waiting + WARM_UP):
            now = engine.step(now) or now
        gc.collect()
        for _ in range(num_steps):
            began = time.thread_time()
            now = engine.step(now) or now
            yield time.thread_time() - began


if __name__ == "__main__":
    raise SystemExit(main())
