"""What the dispatcher asks its shell to do."""

from dataclasses import dataclass

from mesh.messages import Cancel, Probe, SetRole, Submit
from router.generation import Placement, RouterError, TokenBatch


@dataclass(frozen=True, slots=True)
class Send:
    """A message to an engine's inbox."""

    to: str
    message: Submit | Cancel | Probe | SetRole


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is queued for an engine whose life ended."""

    engine: str


@dataclass(frozen=True, slots=True)
class Place:
    """The request was dispatched (anew)."""

    request: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Deliver:
    """New tokens for the request's consumer. With ``finish`` set, the request is over."""

    request: str
    batch: TokenBatch


@dataclass(frozen=True, slots=True)
class Fail:
    """The request is over, without having been answered in full."""

    request: str
    error: RouterError


Effect = Send | Forget | Place | Deliver | Fail
