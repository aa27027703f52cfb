"""Checks before any process starts what cannot work, and says it in one line."""

import contextlib
import errno
import shutil
import socket
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from mesh.addresses import supervisor_id, supervisors
from mesh.directory import Endpoints, directory
from mesh.errors import UserError
from mesh.topology.backends import backend_rules
from mesh.topology.schema import GatewaySpec, Topology
from mesh.transports import missing_transport

MAX_IPC_PATH_BYTES = 107  # of a Unix socket address


def check_ipc_paths(topology: Topology) -> None:
    for path in _ipc_paths(directory(topology).values()):
        if len(str(path).encode()) > MAX_IPC_PATH_BYTES:
            raise UserError(
                f"{path}: too long for a socket ({MAX_IPC_PATH_BYTES} bytes at most); "
                "set MESHSERVE_RUNTIME_DIR to a shorter folder, or give the mesh a shorter name"
            )


def remove_stale_sockets(topology: Topology, host: str, running: Collection[str]) -> None:
    """Remove the sockets of this host's processes, except of those that are ``running``."""
    mine = {process for process, supervisor in supervisors(topology).items() if supervisor == supervisor_id(host)}
    for process, endpoints in directory(topology).items():
        if process in mine and process not in running:
            for path in _ipc_paths([endpoints]):
                path.unlink(missing_ok=True)


def _ipc_paths(endpoints: Iterable[Endpoints]) -> Iterable[Path]:
    for pair in endpoints:
        for address in (pair.inbox, pair.broadcast):
            if address.startswith("ipc://"):
                yield Path(address.removeprefix("ipc://"))


def check_interpreters(topology: Topology, host: str) -> None:
    """Raise `UserError` if an engine of this host names a Python that is not there, or lacks what it computes with or
    sends KV with.
    """
    for engine in topology.engines:
        if engine.host == host and engine.python is None:
            lacks = [rules.missing(engine.backend) for rules in backend_rules()]
            if engine.server is None:
                lacks.append(missing_transport(topology.transfer.transport))
            for problem in filter(None, lacks):
                raise UserError(f"{engine.id}: {problem}")
        if engine.host == host and engine.python is not None and shutil.which(engine.python) is None:
            raise UserError(
                f"{engine.id}: python = {engine.python!r} is not a program of this machine; name the interpreter of an "
                "environment with this project in it (for vLLM engines, `make vllm-env` makes one)"
            )


def check_ports(topology: Topology, host: str, running: Collection[str]) -> None:
    """Raise `UserError` if a gateway of this host could not listen; those that are ``running`` do."""
    for gateway in topology.gateways:
        if gateway.host == host and gateway.id not in running:
            _check_port(topology, gateway)


def _check_port(topology: Topology, gateway: GatewaySpec) -> None:
    where = f"{gateway.id}: {gateway.address}:{gateway.port}"
    mend = f"set another port for it in {topology.path}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            gateway.address, gateway.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise UserError(f"{where}: no such address ({error.strerror}); use one of this machine") from None
    except PermissionError:
        raise UserError(f"{where}: not allowed to listen there; {mend}, above 1023") from None
    except OSError as error:
        reason = (
            f"is taken{_listener(gateway.port)}"
            if error.errno == errno.EADDRINUSE
            else f"cannot be used ({error.strerror})"
        )
        raise UserError(f"{where} {reason}; {mend}") from None


def _listener(port: int) -> str:
    """Who listens on a port, if this user may know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""
