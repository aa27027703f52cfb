"""Derives where every process of a topology listens from the file alone, so that nobody has to be asked."""

import os
import stat
import tempfile
from pathlib import Path

from mesh.topology.schema import Topology


def runtime_dir(topology: Topology) -> Path:
    """Sockets, logs and lock of this mesh on this host, by name."""
    return runtime_root() / topology.name


def runtime_root() -> Path:
    """Return where the folders of this user's meshes are.

    In ``$MESHSERVE_RUNTIME_DIR``, else in ``meshserve`` of ``$XDG_RUNTIME_DIR`` where that is the user's alone, else in
    a folder of the user beside other temporary ones.
    """
    if configured := os.environ.get("MESHSERVE_RUNTIME_DIR"):
        return Path(configured)
    session = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if session.is_absolute() and _is_private(session):
        return session / "meshserve"
    return Path(tempfile.gettempdir()) / f"meshserve-{os.getuid()}"


def _is_private(folder: Path) -> bool:
    """Whether it is the user's own folder, and closed to others."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def reached_at(listening: str, host_address: str) -> str:
    """Return where others reach what listens at an address: where its host is, if that stands for all addresses. It is
    in the form that URLs take.
    """
    found = (host_address or "127.0.0.1") if listening in ("*", "0.0.0.0", "::") else listening
    return f"[{found}]" if ":" in found else found


SUCCESSOR = "~"  # at the end of a name; names in a topology never have it


def seats(gateway: str) -> tuple[str, str]:
    """The two names that a gateway has in the mesh by turns: it and its successor live at once for a while."""
    return gateway, gateway + SUCCESSOR


def other_seat(process: str) -> str:
    """Return where the predecessor of a gateway's process is, and where its successor will be."""
    first, second = seats(owner_of(process))
    return second if process == first else first


def owner_of(process: str) -> str:
    """The name in the topology of a process of the mesh."""
    return process.removesuffix(SUCCESSOR)


def gateway_names(topology: Topology) -> list[str]:
    """All names under which gateways may be met."""
    return [seat for gateway in topology.gateways for seat in seats(gateway.id)]


def supervisor_id(host: str) -> str:
    return f"supervisor-{host}"


def supervisors(topology: Topology) -> dict[str, str]:
    """Return who supervises each process."""
    hosts = {spec.id: spec.host for spec in topology.processes}
    hosts |= {seat: gateway.host for gateway in topology.gateways for seat in seats(gateway.id)}
    return {process: supervisor_id(host) for process, host in hosts.items()}
