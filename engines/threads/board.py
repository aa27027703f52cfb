"""Tells the engines of a host which of them compute: one byte each, in files of the mesh's runtime folder."""

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from engines.threads.sharing import Threads, num_threads
from mesh.topology.schema import EngineSpec, Topology

FOLDER = "threads"
RESTS, WORKS = 0, 1


class ThreadBoard:
    """The engines of a host that compute on its cores, and which of them work. This one does until it says otherwise.

    An engine that dies while it works counts as working until it is back: others leave its threads alone.
    """

    def __init__(self, folder: Path, engines: Sequence[EngineSpec], me: str) -> None:
        """Raise `OSError` if there is no room for it."""
        folder.mkdir(parents=True, exist_ok=True)
        self._names = [engine.id for engine in engines]
        self._threads = [Threads(engine.threads, engine.most_threads) for engine in engines]
        self._bytes = [_open_byte(folder / name) for name in self._names]
        self._me = self._names.index(me)
        self._num_cores = len(os.sched_getaffinity(0))
        self.work()

    def __repr__(self) -> str:
        working = [name for name, byte in zip(self._names, self._bytes, strict=True) if byte[0] == WORKS]
        return f"<ThreadBoard {self._names[self._me]} of {len(self._names)}, working: {working}>"

    def work(self) -> None:
        """This engine needs its threads from now on."""
        self._bytes[self._me][0] = WORKS

    def rest(self) -> None:
        """This engine has nothing to compute."""
        self._bytes[self._me][0] = RESTS

    def num_threads(self) -> int:
        """Return how many threads this engine computes with now."""
        return num_threads(self._me, self._threads, [byte[0] == WORKS for byte in self._bytes], self._num_cores)


def open_board(topology: Topology, engine: EngineSpec, runtime: Path) -> ThreadBoard | None:
    """Open the board of an engine's host. None: nobody there uses the threads of others. Raise `OSError`."""
    engines = sorted((one for one in topology.own_engines if _computes_beside(one, engine)), key=lambda one: one.id)
    if engine not in engines or all(one.most_threads == one.threads for one in engines):
        return None
    return ThreadBoard(runtime / FOLDER, engines, engine.id)


def _computes_beside(other: EngineSpec, engine: EngineSpec) -> bool:
    return other.host == engine.host and other.device == "cpu" and other.backend != "simulated"


def _open_byte(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size == 0:
            os.ftruncate(descriptor, 1)
        return mmap.mmap(descriptor, 1)
    finally:
        os.close(descriptor)
