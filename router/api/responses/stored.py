"""The store of responses for an event loop."""

from functools import partial
from pathlib import Path
from typing import Final

from mesh.topology.stores import ResponsesSpec
from router.api.responses.store import ResponseStore, StoredResponse
from router.generation import Overloaded
from router.stores.folders import state_folder
from router.stores.store_thread import StoreThread

DEADLINE_S: Final = 10.0


class StoredResponses:
    """``path`` None: nothing is kept."""

    def __init__(self, path: Path | None, max_bytes: int, max_age_s: float) -> None:
        self.path: Final = path
        self._thread: StoreThread[ResponseStore] | None = None
        if path is not None:
            self._thread = StoreThread("responses", partial(ResponseStore, path, max_bytes, max_age_s), DEADLINE_S)

    @classmethod
    def of(cls, spec: ResponsesSpec, mesh: str) -> "StoredResponses":
        """Make that of a mesh."""
        folder = spec.folder or state_folder(mesh, "responses")
        return cls(folder / "responses.sqlite" if spec.keep else None, spec.max_bytes, spec.max_age_s)

    def __repr__(self) -> str:
        return f"<StoredResponses {self.path} {self._thread!r}>"

    async def keep(self, stored: StoredResponse) -> bool:
        """Return whether it is kept: whatever is wrong with the store, there is an answer."""
        if self._thread is None:
            return False
        try:
            return await self._thread.run(lambda store: store.put(stored))
        except Overloaded:
            return False

    async def get(self, id_: str, owner: str, now: float) -> StoredResponse | None:
        """Raise `Overloaded` if the store does not answer."""
        return None if self._thread is None else await self._thread.run(lambda store: store.get(id_, owner, now))

    async def delete(self, id_: str, owner: str) -> bool:
        """Raise `Overloaded` if the store does not answer."""
        return self._thread is not None and await self._thread.run(lambda store: store.delete(id_, owner))

    def close(self) -> None:
        """Close it, once what waits is done."""
        if self._thread is not None:
            self._thread.close()


def nothing_stored() -> StoredResponses:
    return StoredResponses(None, 0, 0.0)
