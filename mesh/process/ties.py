"""Ties of a process to the supervisor of its host, where a cluster's engine places hosts.

The supervisor of such a process tells it where hosts are and what the mesh's key is. The process does not outlive its
supervisor, since the cluster that took the host away may give its room to somebody else.
"""

import argparse
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mesh.errors import UserError
from mesh.sockets.curve import CurveKey
from mesh.wire.hosts import HostPlace

PR_SET_PDEATHSIG = 1
MAX_KEY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Ties:
    """What ties a process to its mesh. ``places``: a file with where hosts are. ``key_descriptor``: open, of a file in
    memory with the mesh's key.

    ``parent``: the process with which this one ends. None of them: the process is on its own, as those of a mesh are
    whose hosts the topology names.
    """

    places: Path | None = None
    key_descriptor: int | None = None
    parent: int | None = None

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--places", type=Path, metavar="FILE", help="where hosts are")
        parser.add_argument("--key-descriptor", type=int, metavar="N", help="of an open file with the mesh's key")
        parser.add_argument("--parent", type=int, metavar="PID", help="the process with which this one ends")

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Ties":
        return cls(options.places, options.key_descriptor, options.parent)

    def arguments(self) -> tuple[str, ...]:
        """For the command line of a child."""
        given = (("--places", self.places), ("--key-descriptor", self.key_descriptor), ("--parent", self.parent))
        return tuple(str(word) for option, value in given if value is not None for word in (option, value))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """That a child must inherit."""
        return () if self.key_descriptor is None else (self.key_descriptor,)

    def end_with_parent(self) -> None:
        """Be killed by the kernel when the thread of the parent ends that started this process."""
        if self.parent is None:
            return
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.parent:  # it ended before it was asked for
            os.kill(os.getpid(), signal.SIGKILL)

    def read_places(self) -> list[HostPlace] | None:
        """Read where hosts are. None: hosts are where the topology says."""
        if self.places is None:
            return None
        try:
            return msgspec.json.decode(self.places.read_bytes(), type=list[HostPlace])
        except (OSError, msgspec.DecodeError) as error:
            raise UserError(f"{self.places}: cannot tell where hosts are: {error}") from None

    def read_key(self, file: Path | None) -> CurveKey | None:
        """The mesh's key, from memory or from its ``file``; None: it has none."""
        if self.key_descriptor is not None:
            return CurveKey.of(os.pread(self.key_descriptor, MAX_KEY_BYTES, 0))
        return CurveKey.load(file) if file is not None else None


NO_TIES = Ties()


def write_places(file: Path, places: list[HostPlace]) -> None:
    """All at once, or not at all. Raise `OSError`."""
    draft = file.with_name(f".{file.name}.new")
    draft.write_bytes(msgspec.json.encode(places))
    draft.replace(file)


def hold_in_memory(key: CurveKey) -> int:
    """A descriptor of a file that nobody else can open, and that ends with the processes that have it."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    os.write(descriptor, msgspec.json.encode(key))
    return descriptor
