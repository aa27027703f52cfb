"""Checks what backends ask of a topology's engines: each package has its rules under the entry points `BACKENDS`."""

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from mesh.topology.placed import Processes
from mesh.topology.report import Report
from mesh.topology.schema import Topology

BACKENDS = "meshserve.backends"


class BackendRules(Protocol):
    """A module with these names."""

    BACKENDS: Collection[str]  # their names
    MODELLED: Collection[str]  # those that compute nothing, and only take the time
    GPU_BACKENDS: frozenset[str]  # whose KV memory may lie on a GPU
    FIXED: Collection[str]  # those whose engines load no more services once they have started

    def defaults(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields of `EngineSpec` that engines have where their table says nothing; ``given`` is what it says."""

    def missing(self, backend: str) -> str:
        """Say what the backend needs that is not installed for this interpreter; empty if it can compute."""

    def check(self, topology: Topology, processes: Processes, report: Report) -> None:
        """Add the faults of engines' tables to the report."""


@cache
def backend_rules() -> tuple[BackendRules, ...]:
    """Return the rules of all packages that are installed."""
    return tuple(entry.load() for entry in entry_points(group=BACKENDS))
