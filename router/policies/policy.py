"""Defines what every dispatch policy takes and answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from mesh.wire.control import PrefillMode, PrefillOrder
from mesh.wire.requests import PrefixAt
from router.policies.capabilities import Capability
from router.view.cluster_view import ClusterView
from router.view.engine_view import RequestView


class Dispatch(msgspec.Struct, frozen=True):
    """Send it now. Equal engines mean that the request stays where it was prefilled. ``numbers`` explain the rule."""

    prefill_engine: str
    decode_engine: str
    rule: str
    prefill_s: float  # predicted, of this prefill alone
    predicted_ttft_s: float  # from now on
    multiplex: bool = False  # counts on the slack of running decodes: the engine checks it again
    prefill: PrefillMode = PrefillMode.CHUNKED
    order: PrefillOrder = PrefillOrder.URGENCY
    numbers: Mapping[str, float] = msgspec.field(default_factory=dict)
    slice_tokens: int | None = None  # after which it comes back; None: when it has ended
    stays: bool = False  # counts on it decoding where it is prefilled, even on an engine that only prefills
    prefix_at: PrefixAt | None = None  # from where the prefill engine may pull KV, if that saves time
    batch: int = 0  # those of one number are sent as one static batch; 0: alone


@dataclass(frozen=True, slots=True)
class Wait:
    """Says not now: the request is tried again when the view changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Says never: no living engine could run the request, however idle."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Says that the promise cannot be kept any more: the client is told so now, and what could be served in time is."""

    reason: str


class BaselineParameters(msgspec.Struct, frozen=True):
    """``reject_late``: refuse at once what no engine is predicted to serve without a broken promise (Mooncake)."""

    reject_late: bool = False


class QueueParameters(msgspec.Struct, frozen=True):
    """``prefill``: prompts are computed beside decodes, or before them, first come, first served (vLLM of 2023)."""

    prefill: Literal["chunked", "first"] = "chunked"

    @property
    def mode(self) -> PrefillMode:
        return PrefillMode(self.prefill)

    @property
    def order(self) -> PrefillOrder:
        return PrefillOrder.ARRIVAL if self.prefill == "first" else PrefillOrder.URGENCY


Decision = Dispatch | Wait | Reject | GiveUp


C = TypeVar("C", bound=Capability)


class Policy(Protocol):
    """Decides one request at a time. Pure, but for its own state: a turn, or the random stream that it was given.

    Policies derive from this class. Each is a file of this folder that ends with its `PolicyEntry`.
    """

    capabilities: tuple[Capability, ...] = ()  # what it can do beside what its class says

    @property
    def name(self) -> str:
        """The name that topologies use."""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision: ...

    def offers(self, kind: type[C]) -> C | None:
        """The capability of this kind, if the policy has it."""
        return next((one for one in (self, *self.capabilities) if isinstance(one, kind)), None)


class NoParameters(msgspec.Struct, frozen=True):
    """The parameters of policies without any."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """How `router.policies.registry` knows a policy: a module of this folder names its own `ENTRY`.

    ``make`` takes an instance of ``parameters`` and the gateway's random stream for its policy.
    """

    name: str
    make: Callable[[Any, Random], Policy]
    parameters: type[msgspec.Struct] = NoParameters
