"""What an engine's mind asks its shell to do: messages to send, blocks to copy, models to load and to drop."""

from dataclasses import dataclass

from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send


@dataclass(frozen=True, slots=True)
class LoadService:
    """In the background; tell the core how it ended."""

    service: str


@dataclass(frozen=True, slots=True)
class DropService:
    """Nothing of it is left in the core: its weights and memory may go."""

    service: str


Effect = Send | ExportBlocks | ImportBlocks | LoadService | DropService
