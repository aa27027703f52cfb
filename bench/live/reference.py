"""How fast the machine is while something is measured: a process that does the same small work ten times a second.

It counts CPU time, so it does not see who else wants the cores, and what it works on fits into a core's cache, so it
does not see what others do to memory. What is left is the speed of the core: its clock, and neighbours on other virtual
machines of the same processor.
"""

import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from mesh.errors import UserError

BEAT_S = 0.1
SIDE, PRODUCTS = 128, 8  # matrices of 64 KiB: two milliseconds or so
BEAT = struct.Struct("dd")  # when, by the monotonic clock, and CPU seconds
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Reference:
    """What the process wrote into ``file`` by now."""

    file: Path

    def work_s(self, begin_at: float, end_at: float) -> float:
        """Return the median of the CPU seconds of a piece of work between two moments of the monotonic clock. Raise
        `UserError` if there was none.
        """
        data = self.file.read_bytes()
        beats = BEAT.iter_unpack(data[: len(data) // BEAT.size * BEAT.size])
        took = [seconds for at, seconds in beats if begin_at <= at <= end_at]
        if not took:
            raise UserError(f"the reference did no work in {end_at - begin_at:.1f} s: is the machine overloaded?")
        return float(median(took))


@contextmanager
def reference() -> Iterator[Reference]:
    """Start the process. It ends with the block, or with this process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "beats"
        file.touch()
        command = [sys.executable, "-m", "bench.live.reference", str(file)]
        one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=one_thread)
        try:
            yield Reference(file)
        finally:
            process.communicate(timeout=STOP_S)


def main() -> None:
    """Work until standard input ends."""
    left, right = (np.random.default_rng(seed).random((SIDE, SIDE), np.float32) for seed in range(2))
    with Path(sys.argv[1]).open("ab", buffering=0) as file:
        while not select.select([sys.stdin], [], [], BEAT_S)[0]:
            began_s = time.thread_time()
            for _ in range(PRODUCTS):
                left @ right
            file.write(BEAT.pack(time.monotonic(), time.thread_time() - began_s))


if __name__ == "__main__":
    main()
