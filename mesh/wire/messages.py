"""All messages by socket, their encoder and their decoders."""

from typing import Generic, TypeVar

import msgspec

from mesh.wire.adapters import AdapterAnswer, AddAdapter, ExpectAdapter, ForgetAdapter, RemoveAdapter
from mesh.wire.bounds import MAX_BODY_BYTES
from mesh.wire.control import (
    Announce,
    Drain,
    DrainServer,
    LoadService,
    Locate,
    Migrate,
    Renew,
    RequestPlaces,
    SetPolicy,
    SetRole,
    SetRunning,
    StageService,
    Stop,
    UnloadService,
)
from mesh.wire.frames import WireError
from mesh.wire.hosts import HostsMoved
from mesh.wire.placement import PlacementStatus
from mesh.wire.prefixes import PrefixesHeld, TellPrefixes
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Failed,
    Held,
    Moved,
    NotHeld,
    Probe,
    Recall,
    Refused,
    SlicesEnded,
    StepTokens,
    Submit,
    SubmitBatch,
)
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from mesh.wire.transfers import (
    Abort,
    Blocks,
    Commit,
    Committed,
    Declined,
    Extend,
    Extended,
    Pull,
    Reserve,
    Reserved,
    Taken,
)

T = TypeVar("T")
TransferMessage = Pull | Reserve | Reserved | Extend | Extended | Declined | Blocks | Taken | Commit | Committed | Abort
EngineMessage = (
    Submit
    | SubmitBatch
    | Cancel
    | Recall
    | Probe
    | SetRole
    | Migrate
    | Drain
    | LoadService
    | StageService
    | UnloadService
    | Announce
    | ExpectAdapter
    | ForgetAdapter
    | TellPrefixes
    | TransferMessage
)
EngineAnswer = Accepted | Refused | Moved | SlicesEnded | Held | NotHeld | StepTokens | Failed
GatewayMessage = EngineAnswer | PrefixesHeld | SetPolicy | Locate | DrainServer | AddAdapter | RemoveAdapter
SupervisorMessage = Stop | SetRunning | Renew
BroadcastMessage = EngineStatus | GatewayStatus | PlacementStatus | SupervisorStatus
VisitorAnswer = RequestPlaces | AdapterAnswer  # for the process that asked alone
# `HostsMoved` goes to any process.
Message = EngineMessage | GatewayMessage | SupervisorMessage | BroadcastMessage | VisitorAnswer | HostsMoved
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


class Codec(Generic[T]):
    """Decodes the bodies that one socket may receive."""

    def __init__(self, union: object) -> None:
        self._decoder = msgspec.msgpack.Decoder(union)

    def decode(self, body: bytes | memoryview) -> T:
        """Raise `WireError` on anything that is not one of the socket's messages."""
        if len(body) > MAX_BODY_BYTES:
            raise WireError(f"malformed body: {len(body)} bytes, at most {MAX_BODY_BYTES} are")
        try:
            return self._decoder.decode(body)  # type: ignore[no-any-return]
        except Exception as error:  # the decoder's own, but UnicodeDecodeError, RecursionError and MemoryError, too
            raise WireError(f"malformed body: {str(error)[:200]}") from None
