"""What the dispatcher asks its shell to do."""

import msgspec

from mesh.messages import Cancel, Probe, Recall, SetRole, Submit
from router.generation import Placement, RouterError, TokenBatch


class Send(msgspec.Struct, frozen=True):
    """A message to an engine's inbox."""

    to: str
    message: Submit | Cancel | Probe | Recall | SetRole


class Forget(msgspec.Struct, frozen=True):
    """Drop what is queued for an engine whose life ended."""

    engine: str


class Place(msgspec.Struct, frozen=True):
    """The request was dispatched (anew)."""

    request: str
    placement: Placement


class Deliver(msgspec.Struct, frozen=True):
    """New tokens for the request's consumer. With ``finish`` set, the request is over."""

    request: str
    batch: TokenBatch


class Fail(msgspec.Struct, frozen=True):
    """The request is over, without having been answered in full."""

    request: str
    error: RouterError


Effect = Send | Forget | Place | Deliver | Fail
