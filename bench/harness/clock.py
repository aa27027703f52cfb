"""Time of this process's work."""

import time
from collections.abc import Callable


def timed(run: Callable[[], object]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
