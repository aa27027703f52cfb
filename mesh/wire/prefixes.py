"""The messages by which engines tell gateways which prefixes they hold, and by which gateways ask."""

from typing import Annotated, Final

import msgspec

from mesh.wire.bounds import Count, Name

MOST_NAMES: Final = 2**16  # of a service, in one message

Names = Annotated[list[Annotated[int, msgspec.Meta(ge=0, lt=2**48)]], msgspec.Meta(max_length=MOST_NAMES)]


class ServicePrefixes(msgspec.Struct, frozen=True):
    """Prefixes of one service (`mesh.prefix_names`) that the engine's pool holds now, and that it has given up.
    ``lost``: those that it gave up and that KV tiers of its host do not hold, either, or not any more.
    """

    service: Name
    kept: Names
    gone: Names = []
    lost: Names = []


class PrefixesHeld(msgspec.Struct, frozen=True, tag=True):
    """Tells a gateway what has changed since the message with the number before, or, with ``is_all``, what is held.

    ``number`` counts messages about changes; statuses repeat the last one (`EngineStatus.prefix_news`).
    """

    number: Count
    services: list[ServicePrefixes]
    is_all: bool = False


class TellPrefixes(msgspec.Struct, frozen=True, tag=True):
    """Asks an engine for `PrefixesHeld` with all that it holds, and for changes from then on."""
