"""Ports in a row that nobody uses on this machine."""

import socket
from contextlib import ExitStack

from mesh.errors import UserError

LAST_PORT = 32_000  # above are those that the system gives to whoever connects


def free_ports_from(first: int, count: int, bind: str) -> int:
    """The first of so many free ports in a row, ``first`` or above. Raise `UserError` if there are none."""
    address = "0.0.0.0" if bind == "*" else bind
    for port in range(first, max(first, LAST_PORT - count) + 1, count):
        if _are_free(address, port, count):
            return port
    raise UserError(f"no {count} ports in a row are free on {bind} from {first} on; set another base_port")


def _are_free(address: str, first: int, count: int) -> bool:
    with ExitStack() as probes:
        try:
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind((address, port))
        except OSError:
            return False
    return True
