"""Lists what the state machine of a server asks its shell to do."""

import msgspec

from mesh.wire.messages import EngineAnswer
from mesh.wire.requests import Epoch, RequestSpec


class StartCall(msgspec.Struct, frozen=True):
    """Send a request to the server, with the tokens that it has so far. ``kv_params``: where the KV of its prompt is,
    if another server computed that. ``decode_engine``: that is to go on with it after its prompt; None: this one.
    """

    spec: RequestSpec
    epoch: Epoch
    kv_params: bytes = b""
    decode_engine: str | None = None


class HandOver(msgspec.Struct, frozen=True):
    """Let another server go on: the prompt is computed."""

    spec: RequestSpec
    epoch: Epoch  # of the other server
    to: str
    kv_params: bytes


class StopCall(msgspec.Struct, frozen=True):
    """Nobody wants what the server still says of it: close its connection, which cancels it there."""

    request: str


class Say(msgspec.Struct, frozen=True):
    """TellStatus the gateway's core, as an engine would."""

    message: EngineAnswer


class TellStatus(msgspec.Struct, frozen=True):
    """TellStatus the gateway's core how the server is: `ServerCore.status` has news."""


ServerEffect = StartCall | HandOver | StopCall | Say | TellStatus
