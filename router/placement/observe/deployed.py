"""Leaves out of what processes say what is no service of the deployment any more, and ends."""

from collections.abc import Collection

from msgspec import structs

from mesh.wire.control import EnginePlace
from mesh.wire.messages import BroadcastMessage
from mesh.wire.placement import Decision, PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus


def of_deployment(status: BroadcastMessage, services: Collection[str]) -> BroadcastMessage:
    """Return the status with these services alone."""
    match status:
        case EngineStatus():
            return _engine(status, services)
        case GatewayStatus():
            return structs.replace(status, services=[tally for tally in status.services if tally.name in services])
        case PlacementStatus():
            found, made = (one and _decision(one, services) for one in (status.decision, status.made))
            return structs.replace(status, decision=found, made=made)
    return status


def _engine(status: EngineStatus, services: Collection[str]) -> EngineStatus:
    return structs.replace(
        status,
        services=[service for service in status.services if service.name in services],
        place=None if status.place is None else _place(status.place, services),
        loading=[name for name in status.loading if name in services],
    )


def _decision(decision: Decision, services: Collection[str]) -> Decision:
    places = {engine: _place(place, services) for engine, place in decision.places.items()}
    return structs.replace(decision, places=places, services=[one for one in decision.services if one.name in services])


def _place(place: EnginePlace, services: Collection[str]) -> EnginePlace:
    return structs.replace(place, services=tuple(name for name in place.services if name in services))
