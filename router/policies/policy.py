"""What every dispatch policy takes and answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mesh.messages import PrefillMode
from router.cluster import ClusterView
from router.view import RequestView


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send it now. Equal engines mean that the request stays where it was prefilled. ``numbers`` explain the rule."""

    prefill_engine: str
    decode_engine: str
    rule: str
    prefill_s: float  # predicted, of this prefill alone
    predicted_ttft_s: float  # from now on
    multiplex: bool = False  # counts on the slack of running decodes: the engine checks it again
    prefill: PrefillMode = PrefillMode.CHUNKED
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now; it is tried again when the view changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Never: no living engine could run it, however idle."""

    reason: str


Decision = Dispatch | Wait | Reject


class Policy(Protocol):
    """Decides one request at a time. Pure, but for its own state: a turn, or the random stream that it was given."""

    @property
    def name(self) -> str:
        """What topologies call it."""

    def decide(self, request: RequestView, view: ClusterView, now: float) -> Decision: ...
