"""Lists what an engine's state machine asks its shell to do, such as to send, compute, copy or load a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from engines.scheduling.step import Step
from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send
from mesh.effects import Follow, Forget, Publish, Rest
from mesh.wire.adapters import LoraAdapter
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineMessage


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Loads a model in the background. Tell the core how it ended."""

    service: str


@dataclass(frozen=True, slots=True)
class StageModel:
    """Reads a model's weights into the host's memory in the background. Tell the core how it ended."""

    service: str


@dataclass(frozen=True, slots=True)
class UnstageModel:
    """Forget the weights that are in the host's memory."""

    service: str


@dataclass(frozen=True, slots=True)
class DropWeights:
    """No step computes the service until it is loaded again: its weights may go. The KV of its requests stays."""

    service: str


@dataclass(frozen=True, slots=True)
class DropModel:
    """Nothing of it is left in the core: its memory may go, and its weights, if they are still here."""

    service: str


@dataclass(frozen=True, slots=True)
class LoadAdapter:
    """Loads a LoRA adapter of a service's model in the background, into so many bytes. Tell the core how it ended."""

    service: str
    adapter: LoraAdapter
    num_bytes: int


@dataclass(frozen=True, slots=True)
class DropAdapter:
    """No request here uses it any more: its memory may go. ``key``: of `LoraAdapter`."""

    service: str
    key: str


@dataclass(frozen=True, slots=True)
class OffloadBlocks:
    """Copy these physical blocks to host memory and keep them; tell the core how it ended (`Copied`)."""

    ticket: int
    service: str
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class RestoreBlocks:
    """Copy what is kept, from its block ``first`` on, to these physical blocks; tell the core how it ended."""

    ticket: int
    service: str
    first: int
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class ForgetBlocks:
    """What is kept is not wanted any more."""

    ticket: int
    service: str


@dataclass(frozen=True, slots=True)
class Copied:
    """The answer to `OffloadBlocks` and `RestoreBlocks`. ``elapsed_s`` from the order to the end."""

    ticket: int
    ok: bool
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class StoreBlocks:
    """Copy these physical blocks to the KV tiers, each under its chain digest, unless they get new content before;
    tell the core how it ended (`BlocksStored`). ``used``: chain digests of these and of others that tiers may hold,
    with the time at which each counts as used.
    """

    service: str
    digests: Sequence[bytes]
    blocks: Sequence[int]
    used: Sequence[tuple[bytes, float]]


@dataclass(frozen=True, slots=True)
class LoadBlocks:
    """Copy what KV tiers hold under these digests to these physical blocks, in order; tell the core how it ended
    (`BlocksLoaded`).
    """

    ticket: int
    service: str
    digests: Sequence[bytes]
    blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class StopLoading:
    """Write nothing of that load to its blocks any more: they are computed, or are others'."""

    ticket: int
    service: str


Loading = LoadModel | StageModel | LoadAdapter
Dropping = DropWeights | DropModel | UnstageModel | DropAdapter
Tiers = StoreBlocks | LoadBlocks | StopLoading
Effect = Send | ExportBlocks | ImportBlocks | OffloadBlocks | RestoreBlocks | ForgetBlocks | Tiers | Loading | Dropping


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute this step; tell the node how it ended."""

    step: Step


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Call `EngineNode.end_turn` once all that has come by now is passed on."""


@dataclass(frozen=True, slots=True)
class CloseMemory:
    """Unmap the memory of a process that is lost."""

    process: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Count and log a message that its sender may not send."""

    sender: Sender
    message: EngineMessage
    reason: str


@dataclass(frozen=True, slots=True)
class Recover:
    """Wait for the device after a step that failed; tell the node whether it goes on."""

    frees_memory: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process at once: nothing but a new one helps."""

    reason: str


NodeEffect = Effect | Compute | EndTurn | Publish | Follow | Forget | CloseMemory | Refuse | Recover | Exit | Rest
