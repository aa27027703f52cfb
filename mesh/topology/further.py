"""Checks what other packages know of a topology: each offers a function under the entry points `CHECKS`."""

from importlib.metadata import entry_points

from mesh.topology.schema import Topology

CHECKS = "meshserve.checks"


def check_further(topology: Topology) -> list[str]:
    """Remarks of one line each. Raise `UserError` for what could not start."""
    return [remark for entry in entry_points(group=CHECKS) for remark in entry.load()(topology)]
