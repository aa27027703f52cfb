"""Leaves out of what processes say what is no service of the deployment any more, and ends."""

from collections.abc import Collection

from msgspec import structs

from mesh.wire.control import EnginePlace
from mesh.wire.messages import BroadcastMessage
from mesh.wire.status import EngineStatus, GatewayStatus


def of_deployment(status: BroadcastMessage, services: Collection[str]) -> BroadcastMessage:
    """Return the status with these services alone."""
    match status:
        case EngineStatus():
            held = [service for service in status.services if service.name in services]
            place = None if status.place is None else _place(status.place, services)
            return structs.replace(status, services=held, place=place)
        case GatewayStatus():
            return structs.replace(status, services=[tally for tally in status.services if tally.name in services])
    return status


def _place(place: EnginePlace, services: Collection[str]) -> EnginePlace:
    return structs.replace(place, services=tuple(name for name in place.services if name in services))
