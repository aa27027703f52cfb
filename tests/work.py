"""How much work something is, in a measure that no other program of the machine changes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def num_lines_run(work: Callable[[], object]) -> int:
    """Of Python, in all functions that are called meanwhile."""
    num_lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_lines
        num_lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return num_lines
