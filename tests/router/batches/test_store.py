"""The store: claims are of one gateway at a time, answers count once, bounds hold."""

import pytest

from router.batches.records import BatchStatus, FilePurpose, LineAnswer, StoredBatch, StoredFile
from router.batches.store import BatchStore, ClaimLostError, StoreFullError


@pytest.fixture
def store(tmp_path):
    made = BatchStore(tmp_path / "store", 10_000)
    yield made
    made.close()


def batch(name="batch_1", owner="me", **fields) -> StoredBatch:
    return StoredBatch(name, owner, "", owner, "/v1/completions", "file-1", "24h", 100, 100 + 86400, **fields)


def answer(number: int, text: bytes = b"{}\n", *, is_error: bool = False) -> LineAnswer:
    return LineAnswer(number, is_error, text)


def test_one_gateway_at_a_time(store):
    store.add_batch(batch())
    assert [one.id for one in store.claim("a", 100.0, 120.0, 5)] == ["batch_1"]
    assert store.claim("b", 110.0, 130.0, 5) == []
    store.renew("a", ["batch_1"], 150.0)
    assert store.claim("b", 130.0, 140.0, 5) == []
    assert [one.id for one in store.claim("b", 151.0, 170.0, 5)] == ["batch_1"]
    with pytest.raises(ClaimLostError):
        store.add_answers("batch_1", "a", [answer(1)])
    assert store.answered("batch_1") == set()
    store.release("b")
    assert [one.id for one in store.claim("a", 152.0, 170.0, 5)] == ["batch_1"]


def test_answers_count_once(store):
    store.add_batch(batch())
    store.claim("a", 100.0, 120.0, 5)
    store.add_answers("batch_1", "a", [answer(1), answer(2, is_error=True)])
    counted = store.add_answers("batch_1", "a", [answer(2, is_error=True), answer(3)])
    assert (counted.completed, counted.failed) == (2, 1)
    assert list(store.answers("batch_1", is_error=False)) == [b"{}\n"] * 2


def test_what_is_in_the_store_is_there_after_a_restart(store, tmp_path):
    store.add_batch(batch())
    store.claim("a", 100.0, 120.0, 5)
    store.add_answers("batch_1", "a", [answer(1)])
    again = BatchStore(tmp_path / "store", 10_000)
    assert (again.answered("batch_1"), again.batch("batch_1", "me").completed) == ({1}, 1)
    again.close()


def test_answers_have_room_or_none_is_kept(store):
    store.add_batch(batch())
    store.claim("a", 100.0, 120.0, 5)
    with pytest.raises(StoreFullError):
        store.add_answers("batch_1", "a", [answer(1), answer(2, b"x" * 10_001)])
    assert (store.answered("batch_1"), store.batch("batch_1").completed) == (set(), 0)


def test_what_is_over_is_nobodys_to_run(store):
    store.add_batch(batch())
    store.change("batch_1", lambda known: known.becomes(BatchStatus.CANCELLED, 101.0))
    assert store.claim("a", 100.0, 120.0, 5) == []


def test_old_files_and_batches_go(store):
    part = store.path_of("x.part")
    part.write_bytes(b"{}")
    store.add_file(StoredFile("file-1", "me", "a", FilePurpose.BATCH, 2, 100, 200), part)
    store.add_batch(batch())
    store.change("batch_1", lambda known: known.becomes(BatchStatus.COMPLETED, 101.0))
    assert store.tidy(150.0, 1000.0) == 0
    assert store.tidy(5000.0, 1000.0) == 1
    assert (store.file("file-1", "me"), store.batch("batch_1")) == (None, None)
    assert not store.path_of("file-1").exists()


def test_owners_have_so_many(store, monkeypatch):
    monkeypatch.setattr("router.batches.store.MAX_BATCHES", 1)
    store.add_batch(batch())
    store.add_batch(batch("batch_2", "them"))
    with pytest.raises(StoreFullError):
        store.add_batch(batch("batch_3"))
