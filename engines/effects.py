"""What an engine's mind asks its shell to do: messages to send, blocks to copy."""

from kvtransfer.protocol import ExportBlocks, ImportBlocks, Send

Effect = Send | ExportBlocks | ImportBlocks
