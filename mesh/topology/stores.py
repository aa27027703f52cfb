"""The settings of what a mesh keeps beside what it serves: responses, KV blocks, and adapters that were added."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DAY_S: Final = 86400.0


@dataclass(frozen=True, slots=True)
class ResponsesSpec:
    """Where gateways keep responses, how much of them and how long. ``folder`` None: in the user's state folder."""

    keep: bool = True
    folder: Path | None = None
    max_bytes: int = 2**30
    max_age_days: int = 30

    @property
    def max_age_s(self) -> float:
        return self.max_age_days * DAY_S


@dataclass(frozen=True, slots=True)
class KVTiersSpec:
    """Where the engines of each host keep KV blocks beside their own memory (docs/guides/keep-prefixes.md)."""

    host_bytes: int = 2**30  # of the host's memory
    host_folder: Path | None = None  # a file system in memory; None: the user's own in /dev/shm
    disk_bytes: int = 0  # 0: none on a disk
    disk_folder: Path | None = None  # None: in the user's cache
    peers: bool = False  # engines pull prefixes from each other
    disk_key_file: Path | None = None  # with the key by which blocks on the disk are encrypted
    disk_key_env: str | None = None  # an environment variable with it; neither: they are not


@dataclass(frozen=True, slots=True)
class AdaptersSpec:
    """LoRA adapters that may be added while the mesh runs (docs/guides/serve-adapters.md)."""

    folder: Path  # below which they are, on every host
    most: int = 64  # at a time
    keep: bool = True  # those that were added, for when all gateways have been gone
    state: Path | None = None  # the folder in which gateways keep them; None: the user's for state


KEPT: Final = ResponsesSpec()
