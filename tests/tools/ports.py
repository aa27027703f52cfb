"""Ports in a row that nobody on this machine uses."""

import os
import socket
from contextlib import ExitStack, suppress


def free_range(count: int) -> int:
    """The first of so many, below those that the system gives to whoever connects."""
    for first in range(20_000 + os.getpid() % 100 * 100, 32_000, 10):
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"no {count} ports in a row are free between 20000 and 32000")
