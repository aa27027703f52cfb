"""Places of hosts: they are told to processes when a host has come up, or has come back elsewhere."""

from typing import Annotated

import msgspec
from msgspec import Meta

from mesh.wire.bounds import Count, Name

MAX_HOSTS = 4096
Port = Annotated[int, Meta(ge=1, le=65535)]
Address = Annotated[str, Meta(min_length=1, max_length=253)]  # as long as a DNS name may be


class HostPlace(msgspec.Struct, frozen=True):
    """Where a host is: what its peers connect to, and what it listens on.

    The processes of a host listen on two ports each, counted up from ``base_port``. ``incarnation`` tells which of two
    places is the newer one; processes number their own incarnations from there on. ``is_away``: the host is nowhere
    since it was there.
    """

    name: Name
    address: Address
    base_port: Port
    bind: Address
    incarnation: Count = 0
    is_away: bool = False


class HostsMoved(msgspec.Struct, frozen=True, tag=True):
    """The supervisor of a host tells its processes all places that are known now.

    Everything is said each time, so that nothing is missed where a message was lost.
    """

    places: Annotated[list[HostPlace], Meta(max_length=MAX_HOSTS)]
