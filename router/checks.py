"""Checks what a topology's gateways need, and its policy, before anything starts."""

import os
from importlib.util import find_spec

from mesh.errors import UserError
from mesh.topology.lines import LineIndex
from mesh.topology.parse import read_text
from mesh.topology.schema import PolicySpec, Topology
from router.traces.settings import CollectorSettings

NEEDS_OTEL = 'traces are written with OpenTelemetry\'s messages; run `pip install "meshserve[otel]"`, or leave it out'


def check(topology: Topology) -> list[str]:
    """Remarks: none. Raise `UserError` if the policy cannot be made, or the gateways could not export traces."""
    _check_policy(topology)
    if topology.traces is None:
        return []
    if not has_otel():
        line = LineIndex(read_text(topology.path)).line(("traces",))
        raise UserError(f"{topology.path}:{line}: traces: {NEEDS_OTEL}")
    CollectorSettings.of(topology.traces, os.environ)
    return []


def _check_policy(topology: Topology) -> None:
    if topology.policy == PolicySpec():
        return  # it is there, and to look is slow
    from router.policies.registry import with_defaults  # it imports all policies

    try:
        with_defaults(topology.policy)
    except UserError as error:
        raise UserError(f"{topology.path}: {error}") from None


def has_otel() -> bool:
    """Say whether the extra ``otel`` is installed, without importing it."""
    try:
        return find_spec("opentelemetry.proto.trace") is not None
    except ModuleNotFoundError:
        return False
