"""`kvtransfer.nixl.agent` by the package nixl: the one module that knows it. Extra ``nixl``.

The package's own Python API is left out for two reasons. Its progress thread spins: an idle engine would take a core.
With a delay, which that API does not let one set, the thread sleeps until something comes. And descriptors travel
pickled there; here addresses are numbers of `mesh.wire.transfers.NixlRef`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from nixl import _bindings

from kvtransfer.nixl.agent import MemoryPieces, NixlError, Segment

BACKEND = "UCX"
LONGEST_SLEEP_US = 100_000  # of the progress thread, while nothing comes


class NixlAgent:
    """An agent of this process. Raise `NixlError` if NIXL or UCX cannot begin."""

    def __init__(self, name: str) -> None:
        self.name = name
        config = _bindings.nixlAgentConfig()
        config.useProgThread, config.useListenThread = True, False
        config.pthrDelay = LONGEST_SLEEP_US
        config.syncMode = _bindings.NIXL_THREAD_SYNC_STRICT
        with _errors():
            self._agent = _bindings.nixlAgent(name, config)
            self._backends = [self._agent.createBackend(BACKEND, {})]

    def __repr__(self) -> str:
        return f"<NixlAgent {self.name}>"

    def register(self, segment: Segment, address: int, num_bytes: int) -> None:
        regions = _bindings.nixlRegDList(_kind(segment), [(address, num_bytes, segment.number, "")])
        with _errors():
            self._agent.registerMem(regions, self._backends)

    def metadata(self) -> bytes:
        with _errors():
            return bytes(self._agent.getLocalMD())

    def connect(self, metadata: bytes) -> str:
        with _errors():
            return bytes(self._agent.loadRemoteMD(metadata)).decode()

    def disconnect(self, name: str) -> None:
        with _errors():
            self._agent.invalidateRemoteMD(name)

    def begin(self, name: str, there: MemoryPieces, here: MemoryPieces) -> int:
        lists = _descriptors(here), _descriptors(there)
        with _errors():
            read = int(self._agent.createXferReq(_bindings.NIXL_READ, *lists, name, "", self._backends))
            try:
                self._agent.postXferReq(read, "")
            except Exception:
                self._agent.releaseXferReq(read)
                raise
        return read

    def is_done(self, read: int) -> bool:
        with _errors():
            return bool(self._agent.getXferStatus(read) == _bindings.NIXL_SUCCESS)

    def end(self, read: int) -> None:
        with _errors():
            self._agent.releaseXferReq(read)


def _kind(segment: Segment) -> object:
    return _bindings.VRAM_SEG if segment.kind == "VRAM" else _bindings.DRAM_SEG


def _descriptors(pieces: MemoryPieces) -> object:
    rows = np.empty((len(pieces.addresses), 3), np.uint64)
    rows[:, 0], rows[:, 1], rows[:, 2] = pieces.addresses, pieces.num_bytes, pieces.segment.number
    return _bindings.nixlXferDList(_kind(pieces.segment), rows)


@contextmanager
def _errors() -> Iterator[None]:
    """NIXL's errors have no common class, and UCX adds RuntimeError and UnicodeDecodeError of names."""
    try:
        yield
    except Exception as error:
        raise NixlError(f"NIXL: {error}") from error
