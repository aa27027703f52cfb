"""Keeps files and batches on disk: SQLite for what is known of them, a folder for what is in them. Sync: for threads.

All gateways of a host may share one folder. A batch is run by one of them at a time: it claims the batch for a while,
and claims it again before that is over. What a runner writes after it lost its claim is refused, so each line has one
answer. A line's answer and the counts that it adds to are one transaction.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from router.batches.records import BatchStatus, LineAnswer, StoredBatch, StoredFile

BUSY_S: Final = 10.0  # that another process may hold the store
MAX_FILES: Final = 2000  # of one owner
MAX_BATCHES: Final = 500  # of one owner that are not over
MAX_KEPT: Final = 10_000  # batches in all
WHOLE_GROUP: Final = 64  # answers that a file is written in at a time
BROKEN_OFF_S: Final = 3600.0  # after it was last written, a file that nobody knows of is removed

_TABLES: Final = """
create table if not exists files (
    id text primary key, owner text not null, at integer not null, bytes integer not null, ends integer not null,
    data blob not null);
create index if not exists files_by_owner on files (owner);
create table if not exists batches (
    number integer primary key autoincrement, id text unique not null, owner text not null, status text not null,
    runner text not null default '', until real not null default 0, answered integer not null default 0,
    data blob not null);
create index if not exists batches_by_owner on batches (owner, number);
create table if not exists answers (
    batch text not null, line integer not null, is_error integer not null, text blob not null,
    primary key (batch, line)) without rowid;
"""

_FILE: Final = msgspec.msgpack.Decoder(StoredFile)
_BATCH: Final = msgspec.msgpack.Decoder(StoredBatch)


class StoreFullError(Exception):
    """A bound of the store is reached. The text is for the client."""


class ClaimLostError(Exception):
    """Another gateway runs the batch by now."""


class BatchStore:
    """One connection. ``max_bytes``: of all files and answers together."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Open or make it. Raise `OSError` or `sqlite3.Error` if it cannot be."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.max_bytes = max_bytes
        self._contents = folder / "files"
        self._contents.mkdir(mode=0o700, exist_ok=True)
        self._db = sqlite3.connect(
            folder / "batches.sqlite", timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        self._db.close()

    def again(self) -> "BatchStore":
        """Return another connection to the same store, for a thread that takes long."""
        return BatchStore(self.folder, self.max_bytes)

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone among all processes."""
        self._db.execute("begin immediate")
        try:
            yield self._db
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    # --- files --------------------------------------------------------------------------------------------------------

    def path_of(self, file_id: str) -> Path:
        """Return where what is in a file is, or is to be. ``file_id``: one that was made here."""
        return self._contents / file_id

    def num_bytes(self) -> int:
        """Return how much there is of all files and answers."""
        [files] = self._db.execute("select coalesce(sum(bytes), 0) from files").fetchone()
        [answers] = self._db.execute("select coalesce(sum(answered), 0) from batches").fetchone()
        return int(files) + int(answers)

    def check_room(self, owner: str, num_bytes: int) -> None:
        """Raise `StoreFullError` if there is no room for one more file of that size."""
        [number] = self._db.execute("select count(*) from files where owner = ?", (owner,)).fetchone()
        if number >= MAX_FILES:
            raise StoreFullError(f"There are {number} files already; delete some")
        if self.num_bytes() + num_bytes > self.max_bytes:
            raise StoreFullError(f"All files together can have at most {self.max_bytes} bytes; delete some")

    def add_file(self, file: StoredFile, part: Path) -> None:
        """Keep what is in ``part`` as this file. Raise `StoreFullError`."""
        with self._change():
            self.check_room(file.owner, file.num_bytes)
            part.rename(self.path_of(file.id))
            self._insert(file)

    def _insert(self, file: StoredFile) -> None:
        row = file.id, file.owner, file.created_at, file.num_bytes, file.expires_at, msgspec.msgpack.encode(file)
        self._db.execute("insert or replace into files values (?, ?, ?, ?, ?, ?)", row)

    def file(self, file_id: str, owner: str) -> StoredFile | None:
        row = self._db.execute("select data from files where id = ? and owner = ?", (file_id, owner)).fetchone()
        return None if row is None else _FILE.decode(row[0])

    def files(self, owner: str, after: str | None, limit: int, *, newest_first: bool) -> list[StoredFile]:
        """Return files in the order in which they were made. ``after``: the id of the last one seen before."""
        order, sign = ("desc", "<") if newest_first else ("asc", ">")
        query, values = "select data from files where owner = ?", [owner]
        if after is not None:
            query += f" and rowid {sign} (select rowid from files where id = ? and owner = ?)"
            values += [after, owner]
        rows = self._db.execute(f"{query} order by rowid {order} limit {int(limit)}", values)
        return [_FILE.decode(data) for (data,) in rows]

    def delete_file(self, file_id: str, owner: str) -> bool:
        """Delete a file. Return whether a batch that is not over still wants it, so that it stays."""
        with self._change():
            for batch in self._unfinished(owner):
                if batch.input_file == file_id:
                    return True
            self._db.execute("delete from files where id = ? and owner = ?", (file_id, owner))
        self.path_of(file_id).unlink(missing_ok=True)
        return False

    def _unfinished(self, owner: str) -> list[StoredBatch]:
        over = [str(status) for status in BatchStatus if status.is_over]
        rows = self._db.execute(
            f"select data from batches where owner = ? and status not in ({_marks(over)})", (owner, *over)
        )
        return [_BATCH.decode(data) for (data,) in rows]

    # --- batches ------------------------------------------------------------------------------------------------------

    def add_batch(self, batch: StoredBatch) -> None:
        """Take a new one, which anybody may claim. Raise `StoreFullError`."""
        with self._change():
            if len(self._unfinished(batch.owner)) >= MAX_BATCHES:
                raise StoreFullError(
                    f"There are {MAX_BATCHES} batches under way already; wait for some, or cancel them"
                )
            [number] = self._db.execute("select count(*) from batches").fetchone()
            if number >= MAX_KEPT:
                raise StoreFullError(f"There are {number} batches already; the oldest go after 30 days")
            row = batch.id, batch.owner, str(batch.status), msgspec.msgpack.encode(batch)
            self._db.execute("insert into batches (id, owner, status, data) values (?, ?, ?, ?)", row)

    def batch(self, batch_id: str, owner: str | None = None) -> StoredBatch | None:
        """Return one. ``owner`` None: whosever it is."""
        row = self._db.execute("select data, owner from batches where id = ?", (batch_id,)).fetchone()
        return None if row is None or owner not in (None, row[1]) else _BATCH.decode(row[0])

    def batches(self, owner: str, after: str | None, limit: int) -> list[StoredBatch]:
        """Return batches, the newest first. ``after``: the id of the last one seen before."""
        query, values = "select data from batches where owner = ?", [owner]
        if after is not None:
            query += " and number < (select number from batches where id = ? and owner = ?)"
            values += [after, owner]
        return [
            _BATCH.decode(data)
            for (data,) in self._db.execute(f"{query} order by number desc limit {int(limit)}", values)
        ]

    def change(
        self, batch_id: str, change: Callable[[StoredBatch], StoredBatch], runner: str | None = None
    ) -> StoredBatch:
        """Change a batch. ``runner``: who claimed it; raise `ClaimLostError` if that is over. None: anybody may."""
        with self._change():
            return self._write(batch_id, change, runner)

    def _write(self, batch_id: str, change: Callable[[StoredBatch], StoredBatch], runner: str | None) -> StoredBatch:
        row = self._db.execute("select data, runner from batches where id = ?", (batch_id,)).fetchone()
        if row is None or (runner is not None and row[1] != runner):
            raise ClaimLostError(batch_id)
        changed = change(_BATCH.decode(row[0]))
        self._db.execute(
            "update batches set status = ?, data = ? where id = ?",
            (str(changed.status), msgspec.msgpack.encode(changed), batch_id),
        )
        return changed

    # --- running ------------------------------------------------------------------------------------------------------

    def claim(self, runner: str, now: float, until: float, most: int) -> list[StoredBatch]:
        """Claim the oldest batches that are not over and nobody runs, so many at most."""
        over = [str(status) for status in BatchStatus if status.is_over]
        with self._change():
            rows = self._db.execute(
                f"select id, data from batches where status not in ({_marks(over)}) and until < ? "
                f"order by number limit {int(most)}",
                (*over, now),
            ).fetchall()
            for batch_id, _ in rows:
                self._db.execute("update batches set runner = ?, until = ? where id = ?", (runner, until, batch_id))
        return [_BATCH.decode(data) for _, data in rows]

    def renew(self, runner: str, batch_ids: Sequence[str], until: float) -> None:
        """Claim batches for longer; those that were lost are left alone."""
        with self._change():
            for batch_id in batch_ids:
                self._db.execute("update batches set until = ? where id = ? and runner = ?", (until, batch_id, runner))

    def release(self, runner: str) -> None:
        """Let others run what this runner does not run any more."""
        with self._change():
            self._db.execute("update batches set runner = '', until = 0 where runner = ?", (runner,))

    def answered(self, batch_id: str) -> set[int]:
        """Return the lines of a batch that have an answer."""
        return {line for (line,) in self._db.execute("select line from answers where batch = ?", (batch_id,))}

    def add_answers(self, batch_id: str, runner: str, answers: Sequence[LineAnswer]) -> StoredBatch:
        """Keep answers, and count them. Raise `ClaimLostError`, or `StoreFullError`: then none is kept."""
        with self._change():
            num_bytes = sum(len(one.text) for one in answers)
            if self.num_bytes() + num_bytes > self.max_bytes:
                raise StoreFullError("The store of batches is full; delete files")
            num_new = [0, 0]
            for one in answers:
                row = batch_id, one.number, int(one.is_error), one.text
                num_new[one.is_error] += self._db.execute(
                    "insert or ignore into answers values (?, ?, ?, ?)", row
                ).rowcount
            self._db.execute("update batches set answered = answered + ? where id = ?", (num_bytes, batch_id))
            return self._write(batch_id, lambda batch: _counted(batch, *num_new), runner)

    def answers(self, batch_id: str, *, is_error: bool) -> Iterator[bytes]:
        """Yield the texts of answers, in the order of their lines."""
        last = 0
        query = "select line, text from answers where batch = ? and is_error = ? and line > ? order by line limit ?"
        while rows := self._db.execute(query, (batch_id, int(is_error), last, WHOLE_GROUP)).fetchall():
            last = rows[-1][0]
            yield from (text for _, text in rows)

    def finish(
        self, batch_id: str, runner: str, files: Iterable[StoredFile], ended: Callable[[StoredBatch], StoredBatch]
    ) -> None:
        """End a batch whose files are written: they are there from now on, and its single answers are not."""
        with self._change():
            for file in files:
                self._insert(file)
            self._write(batch_id, ended, runner)
            self._db.execute("delete from answers where batch = ?", (batch_id,))
            self._db.execute("update batches set answered = 0 where id = ?", (batch_id,))

    # --- age ----------------------------------------------------------------------------------------------------------

    def tidy(self, now: float, kept_s: float) -> int:
        """Remove files whose time is over, old batches, and what broken-off uploads left. Return how many files."""
        with self._change():
            gone = [one for (one,) in self._db.execute("select id from files where ends < ?", (int(now),))]
            self._db.execute("delete from files where ends < ?", (int(now),))
            over = [str(status) for status in BatchStatus if status.is_over]
            rows = self._db.execute(f"select id, data from batches where status in ({_marks(over)})", over).fetchall()
            old = [batch_id for batch_id, data in rows if _BATCH.decode(data).created_at + kept_s < now]
            for batch_id in old:
                self._db.execute("delete from answers where batch = ?", (batch_id,))
                self._db.execute("delete from batches where id = ?", (batch_id,))
            known = {one for (one,) in self._db.execute("select id from files")}
        for file_id in gone:
            self.path_of(file_id).unlink(missing_ok=True)
        for path in self._contents.iterdir():
            if path.name not in known and path.stat().st_mtime + BROKEN_OFF_S < now:
                path.unlink(missing_ok=True)
        return len(gone)


def _counted(batch: StoredBatch, num_completed: int, num_failed: int) -> StoredBatch:
    completed, failed = batch.completed + num_completed, batch.failed + num_failed
    return msgspec.structs.replace(batch, completed=completed, failed=failed)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" for _ in values)


def write_answers(store: BatchStore, batch_id: str, path: Path, further: Iterable[bytes], *, is_error: bool) -> int:
    """Write answers of one kind and ``further`` lines to a file; return its bytes. Nothing is left if it has none."""
    num_bytes, part = 0, path.with_suffix(".part")
    with closing(store.again()) as own, part.open("wb") as file:
        for text in own.answers(batch_id, is_error=is_error):
            num_bytes += file.write(text)
        for text in further:
            num_bytes += file.write(text)
    if num_bytes:
        part.replace(path)
    else:
        part.unlink()
    return num_bytes
