"""Keeps responses on disk, in SQLite, for those who go on from them. Sync: for a thread.

All gateways of a host may share one store. The oldest responses of whoever has most of it go when it is full.
"""

import sqlite3
from pathlib import Path
from typing import Final

from msgspec import Struct

BUSY_S: Final = 5.0  # that another process may hold the store
TIDY_EVERY: Final = 64  # responses
TIDY_SHARE: Final = 16  # of what the store may hold, or so many bytes
MAX_STORED: Final = 8 << 20  # bytes of one response

_TABLES: Final = """
create table if not exists responses (
    id text primary key, owner text not null, at real not null, bytes integer not null, data blob not null,
    context blob not null) without rowid;
create index if not exists responses_by_owner on responses (owner, at, bytes);
create index if not exists responses_by_age on responses (at);
"""


class StoredResponse(Struct, frozen=True):
    """``response``: its JSON, as the client got it; ``items``: JSON of all that was said before its output.
    ``owner``: whose it is; nobody else sees it. ``at``: seconds since the epoch.
    """

    id: str
    owner: str
    at: float
    response: bytes
    items: bytes

    @property
    def num_bytes(self) -> int:
        return len(self.response) + len(self.items)


class ResponseStore:
    """One connection. ``max_bytes``: of all responses together; older than ``max_age_s``, they are gone."""

    def __init__(self, path: Path, max_bytes: int, max_age_s: float) -> None:
        """Open or make it. Raise `OSError` or `sqlite3.Error` if it cannot be."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._num_new = self._num_new_bytes = 0
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        self._db.executescript(_TABLES)

    def put(self, stored: StoredResponse) -> bool:
        """Keep a response. Return whether there is room for one of its size at all."""
        if stored.num_bytes > min(MAX_STORED, self._max_bytes):
            return False
        row = stored.id, stored.owner, stored.at, stored.num_bytes, stored.response, stored.items
        self._db.execute("insert or replace into responses values (?, ?, ?, ?, ?, ?)", row)
        self._num_new += 1
        self._num_new_bytes += stored.num_bytes
        if self._num_new >= TIDY_EVERY or self._num_new_bytes * TIDY_SHARE >= self._max_bytes:
            self.tidy(stored.at)
        return True

    def get(self, id_: str, owner: str, now: float) -> StoredResponse | None:
        """Return a response. None: there is none, it is too old, or somebody else's."""
        query = "select id, owner, at, data, context from responses where id = ? and owner = ? and at > ?"
        row = self._db.execute(query, (id_, owner, now - self._max_age_s)).fetchone()
        return None if row is None else StoredResponse(*row)

    def delete(self, id_: str, owner: str) -> bool:
        """Return whether there was one."""
        return self._db.execute("delete from responses where id = ? and owner = ?", (id_, owner)).rowcount > 0

    def tidy(self, now: float) -> None:
        """Remove what is too old, and as much of the oldest as is too much."""
        self._num_new = self._num_new_bytes = 0
        self._db.execute("delete from responses where at <= ?", (now - self._max_age_s,))
        held: dict[str, int] = dict(self._db.execute("select owner, sum(bytes) from responses group by owner"))
        while held and sum(held.values()) > self._max_bytes:
            owner = max(held, key=held.__getitem__)
            held[owner] -= self._remove_oldest(owner)
            if held[owner] <= 0:
                del held[owner]

    def _remove_oldest(self, owner: str) -> int:
        """Return how many bytes some of an owner's oldest responses had."""
        query = "select id, bytes from responses where owner = ? order by at limit 16"
        oldest = self._db.execute(query, (owner,)).fetchall()
        self._db.executemany("delete from responses where id = ?", [(id_,) for id_, _ in oldest])
        return sum(num_bytes for _, num_bytes in oldest) or self._max_bytes

    def close(self) -> None:
        self._db.close()
