"""Gives memory that was freed back to the system, so that one large request does not make a process large for ever."""

import ctypes
import os
from collections.abc import Mapping
from typing import Final

# For processes that hold large pieces for a moment: glibc maps each of 1 MiB and more by itself and gives it back when
# it is freed, and threads share two heaps. It reads this before the process begins.
ENVIRONMENT: Final[Mapping[str, str]] = {"MALLOC_MMAP_THRESHOLD_": str(2**20), "MALLOC_ARENA_MAX": "2"}


def give_back_freed_memory() -> bool:
    """Give freed memory back to the system, which may take some milliseconds. False: this C library cannot do it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    return trim is not None and bool(trim(0))
