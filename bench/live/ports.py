"""Ports of this machine that nobody uses."""

import socket
from contextlib import ExitStack, suppress
from random import SystemRandom

from router.api.http.server import ADMIN_PORT_OFFSET

FREE_PORTS = range(10_000, 19_000)


def free_port() -> int:
    """With the port for operators above it."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """All bound at once, so that they differ, with the ports for operators above them. They are drawn by lot from below
    those that the system gives to whoever connects: such a one may be gone before it is used.
    """
    lot = SystemRandom()
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = lot.choice(FREE_PORTS)
            with suppress(OSError):
                for one in (port, port + ADMIN_PORT_OFFSET):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", one))
                ports.append(port)
        return ports
