"""Decides which of a topology's services each request of a trace asks for."""

from collections.abc import Sequence

from mesh.errors import UserError
from mesh.suggestions import one_of
from mesh.topology.schema import Topology
from simulation.loads.trace_request import TraceRequest


def assign_services(requests: Sequence[TraceRequest], topology: Topology, wanted: str | None) -> list[TraceRequest]:
    """Requests that all name a service of the topology. Raise `UserError` if some cannot.

    ``wanted`` takes a trace that names one service at most; else those that name none get the
    first.
    """
    known = [service.name for service in topology.offered]
    if wanted is not None and wanted not in known:
        raise UserError(f"--service: {topology.path} has no service {wanted!r}; it has {', '.join(known)}")
    traced = sorted({request.service for request in requests if request.service is not None})
    if wanted is not None and len(traced) > 1:
        raise UserError(f"--service: the trace has several services, {', '.join(traced)}; leave the option out")
    unknown = [name for name in traced if name not in known]
    if unknown and wanted is None:
        hint = f"give --service {one_of(known)}" if len(traced) == 1 else "add what is missing"
        raise UserError(f"{topology.path}: has no service {one_of(unknown)}, which the trace asks for; {hint}")
    return [request.asking(wanted or request.service or known[0]) for request in requests]
