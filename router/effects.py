"""Lists what a gateway's core asks its shell to do."""

from collections.abc import Iterable, Mapping

import msgspec

from mesh.effects import Follow, Forget, Publish, Rest
from mesh.wire.adapters import AddAdapter, AddedAdapter, ExpectAdapter, ForgetAdapter, RemoveAdapter
from mesh.wire.control import Drain, LoadService, PolicyChoice, RequestPlaces, SetRole, UnloadService
from mesh.wire.prefixes import TellPrefixes
from mesh.wire.requests import Cancel, Probe, Recall, Submit, SubmitBatch
from router.generation import Route, RouterError, TokenBatch

Order = Drain | LoadService | UnloadService | ExpectAdapter | ForgetAdapter
ToEngine = Submit | SubmitBatch | Cancel | Probe | Recall | SetRole | TellPrefixes | Order


class SendToEngine(msgspec.Struct, frozen=True):
    """A message to an engine's inbox."""

    to: str
    message: ToEngine
    batch: int = 0  # that the request goes with


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


Effect = SendToEngine | Forget | SetRoute | Deliver | Fail


class TakePolicy(msgspec.Struct, frozen=True):
    """Says that another policy decides from now on. Nothing else is left to be done."""

    choice: PolicyChoice


class TakeAdapters(msgspec.Struct, frozen=True):
    """Says which adapters are served from now on, beside those of the topology."""

    served: Mapping[str, AddedAdapter]


class ChangeAdapters(msgspec.Struct, frozen=True):
    """Somebody of the mesh wants this: see to it, and tell the one who asked."""

    asker: str
    order: AddAdapter | RemoveAdapter


class DeclinePolicy(msgspec.Struct, frozen=True):
    """A policy that was chosen is not known here. Nothing is left to be done but to say so."""

    choice: PolicyChoice
    reason: str


class TellPlaces(msgspec.Struct, frozen=True):
    """Publish where the requests are that somebody asked for, for the one who asked alone."""

    asker: str
    message: RequestPlaces


GatewayEffect = (
    Effect | Follow | Publish | TakePolicy | TakeAdapters | ChangeAdapters | DeclinePolicy | TellPlaces | Rest
)


def in_batches(effects: Iterable[Effect]) -> list[Effect]:
    """The same, with requests of one batch in one message, after everything else."""
    batches: dict[tuple[str, int], list[Submit]] = {}
    others: list[Effect] = []
    for effect in effects:
        if isinstance(effect, SendToEngine) and effect.batch and isinstance(effect.message, Submit):
            batches.setdefault((effect.to, effect.batch), []).append(effect.message)
        else:
            others.append(effect)
    return [*others, *(SendToEngine(engine, SubmitBatch(submits)) for (engine, _), submits in batches.items())]
