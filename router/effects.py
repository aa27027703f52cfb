"""What the dispatcher asks its shell to do."""

from collections.abc import Iterable

import msgspec

from mesh.wire.control import SetRole
from mesh.wire.requests import Cancel, Probe, Recall, Submit, SubmitBatch
from router.generation import Route, RouterError, TokenBatch


class Send(msgspec.Struct, frozen=True):
    """A message to an engine's inbox."""

    to: str
    message: Submit | SubmitBatch | Cancel | Probe | Recall | SetRole
    batch: int = 0  # that the request goes with


class Forget(msgspec.Struct, frozen=True):
    """Drop what is queued for an engine whose life ended."""

    engine: str


class SetRoute(msgspec.Struct, frozen=True):
    """The request was dispatched (anew)."""

    request: str
    route: Route


class Deliver(msgspec.Struct, frozen=True):
    """New tokens for the request's consumer. With ``finish`` set, the request is over."""

    request: str
    batch: TokenBatch


class Fail(msgspec.Struct, frozen=True):
    """The request is over, without having been answered in full."""

    request: str
    error: RouterError


Effect = Send | Forget | SetRoute | Deliver | Fail


def in_batches(effects: Iterable[Effect]) -> list[Effect]:
    """The same, with requests of one batch in one message, after everything else."""
    batches: dict[tuple[str, int], list[Submit]] = {}
    others: list[Effect] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.batch and isinstance(effect.message, Submit):
            batches.setdefault((effect.to, effect.batch), []).append(effect.message)
        else:
            others.append(effect)
    return [*others, *(Send(engine, SubmitBatch(submits)) for (engine, _), submits in batches.items())]
