"""What an engine's mind asks its shell to do: messages to send, blocks to copy and to keep, models to load and drop."""

from dataclasses import dataclass

from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send


@dataclass(frozen=True, slots=True)
class LoadModel:
    """In the background; tell the core how it ended."""

    service: str


@dataclass(frozen=True, slots=True)
class DropModel:
    """Nothing of it is left in the core: its weights and memory may go."""

    service: str


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


Effect = Send | ExportBlocks | ImportBlocks | LoadModel | DropModel | OffloadBlocks | RestoreBlocks | ForgetBlocks
