"""Where the time of one decode step goes: in which kernels, and outside of them, beside reading what they read.

    python -m bench.engine.decode_parts [--model REFERENCE] [--dtype int8] [--context 128] [--steps 30] [--json FILE]

Times are those of the processor in the thread that computes, so that what else the machine does counts little. The
least time of products is that of their weights' bytes at the rate at which a sum reads memory in the same run.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.engine.under_test import EngineUnderTest
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from engines.models.store import prepared_dir
from engines.torch_engine.layers import cpu_kernels
from mesh.errors import UserError

REST = "all else: Python, torch's small operations, sampling"
READ_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Part:
    """Of a step, in milliseconds: medians. ``least_ms``: of reading its weights; None: it reads few or none."""

    name: str
    calls: int
    time_ms: float
    least_ms: float | None = None


class TimedKernels:
    """The kernels, whose time is added up by function. ``product_bytes``: of the weights that products read."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self.times_s: dict[str, list[float]] = defaultdict(list)
        self.product_bytes = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._kernels, name)

        def timed(*arguments: Any) -> Any:
            begin = time.thread_time()
            result = function(*arguments)
            self.times_s[name].append(time.thread_time() - begin)
            if name == "product":
                _, form, _, _, _, _, _, outs, ins, *_ = arguments
                self.product_bytes += self._kernels.packed_bytes(form, outs, ins)
            return result

        return timed


def bytes_per_s() -> float:
    """Return the rate at which one thread reads memory, in a median of sums."""
    numbers, times_s = torch.ones(READ_BYTES // 4), []
    for _ in range(7):
        begin = time.thread_time()
        numbers.sum()
        times_s.append(time.thread_time() - begin)
    return READ_BYTES / statistics.median(times_s)


def measure(engine: EngineUnderTest, context: int, steps: int) -> list[Part]:
    calling: Any = cpu_kernels
    timed = calling._kernels = TimedKernels(calling._kernels)
    engine.decode(1, context)
    rounds, calls = defaultdict[str, list[float]](list), dict[str, int]()
    for _ in range(steps):
        timed.times_s.clear()
        timed.product_bytes = 0
        begin = time.thread_time()
        engine.decode(1, context)
        whole_s = time.thread_time() - begin
        for name, times_s in timed.times_s.items():
            rounds[name].append(1e3 * sum(times_s))
            calls[name] = len(times_s)
        rounds[REST].append(1e3 * (whole_s - sum(sum(times_s) for times_s in timed.times_s.values())))
        rounds["step"].append(1e3 * whole_s)
    least_ms = 1e3 * timed.product_bytes / bytes_per_s()
    leasts = {"product": least_ms, "step": least_ms}
    return [Part(name, calls.get(name, 1), statistics.median(own), leasts.get(name)) for name, own in rounds.items()]


def main() -> None:
    parser = script_parser("bench.engine.decode_parts", __doc__, model=True, json=True)
    parser.add_argument("--dtype", default="int8")
    parser.add_argument("--context", type=int, default=128, help="tokens of the request")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    with errors_in_a_line():
        if not cpu_kernels.KERNELS:
            raise UserError("the kernels for processors were not compiled; install a C compiler, then MeshServe again")
        parts = measure(
            EngineUnderTest(prepared_dir(options.model), options.dtype, options.context), options.context, options.steps
        )
    rows = [
        [part.name, f"{part.calls}", f"{part.time_ms:.2f}", "" if part.least_ms is None else f"{part.least_ms:.2f}"]
        for part in parts
    ]
    print_table("one decode step, ms of the processor", ("part",), ("calls", "time", "least, by its bytes"), rows)
    write_json(options.json, parts)


if __name__ == "__main__":
    main()
