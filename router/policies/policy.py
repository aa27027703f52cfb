"""What every dispatch policy takes and answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from mesh.wire.control import PrefillMode, PrefillOrder, SetRole
from mesh.wire.status import Wanted
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
    batch: int = 0  # those of one number are sent as one static batch; 0: alone


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now; it is tried again when the view changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Never: no living engine could run it, however idle."""

    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Its promise cannot be kept any more: the client is told so now, and what could be served in time is."""

    reason: str


class BaselineParameters(msgspec.Struct, frozen=True):
    """``reject_late``: refuse at once what is predicted to miss its TTFT deadline (Mooncake's early rejection)."""

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


@dataclass(frozen=True, slots=True)
class RoleChange:
    """``message`` is for ``engine``."""

    engine: str
    message: SetRole


class Policy(Protocol):
    """Decides one request at a time. Pure, but for its own state: a turn, or the random stream that it was given.

    Policies derive from this class: most need no more than a name and `decide`.
    """

    grace_s: float = 0.0  # how long after its deadline a request may still wait
    uses_lengths: bool = False  # looks at how long answers are expected to be; so do engines then
    length_quantile: float | None = None  # of answers, that it goes by; None: the mean
    uses_prefixes: bool = False  # looks at what engines have likely cached of a request
    uses_gateways: bool = False  # looks at what other gateways there are
    changes_roles: bool = False  # `rebalance` may answer something
    recalls: bool = False  # `recall` may
    opens_at: float | None = None  # what waits is not looked at before, and is then; None: at every change

    @property
    def name(self) -> str:
        """What topologies call it."""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision: ...

    def rank(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[RequestView]:
        """Those to try now, in this order. ``waiting`` is in the order of priorities, then of deadlines."""
        return waiting

    def left(self, request: str) -> None:
        """A request that was dispatched is not where it was sent (any more)."""
        del request

    def rebalance(self, view: ClusterView, num_waiting: int, now: float) -> Sequence[RoleChange]:
        """Which engines are to take another role, given that so many requests found no engine."""
        return ()

    def recall(
        self, not_begun: Mapping[str, Sequence[RequestView]], view: ClusterView, now: float
    ) -> Sequence[RequestView]:
        """Which requests to call back and to decide anew, of those that were sent and have no token yet.

        They come by the engine that is to decode them.
        """
        return ()

    def wanted(self, waiting: Sequence[RequestView], view: ClusterView, now: float) -> Sequence[Wanted]:
        """How many more engines those that wait would fill."""
        return ()
