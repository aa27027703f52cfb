"""The store of responses: whose they are, how long they stay, and what goes when it is full."""

import pytest

from router.api.responses import store as module
from router.api.responses.store import ResponseStore, StoredResponse


@pytest.fixture
def make(tmp_path):
    made = []

    def open_store(max_bytes=10_000, max_age_s=100.0):
        made.append(ResponseStore(tmp_path / "folder/responses.sqlite", max_bytes, max_age_s))
        return made[-1]

    yield open_store
    for store in made:
        store.close()


def response(id_, owner="a", at=0.0, size=1000):
    return StoredResponse(id_, owner, at, b"x" * (size - 2), b"[]")


def test_only_its_owner_finds_a_response(make):
    store = make()
    assert store.put(response("r"))
    assert store.get("r", "a", 1.0) == response("r")
    assert store.get("r", "b", 1.0) is None
    assert not store.delete("r", "b")
    assert store.delete("r", "a")
    assert store.get("r", "a", 1.0) is None


def test_gateways_of_a_host_share_it(make):
    make().put(response("r"))
    assert make().get("r", "a", 1.0) == response("r")


def test_old_ones_are_gone(make):
    store = make()
    store.put(response("old", at=0.0))
    store.put(response("new", at=50.0))
    assert store.get("old", "a", 100.0) is None
    store.tidy(100.0)
    assert not store.delete("old", "a")
    assert store.get("new", "a", 100.0) is not None


def test_what_is_too_large_is_not_kept(make):
    assert not make().put(response("r", size=20_000))


def test_a_full_store_forgets_the_oldest_of_whoever_has_most(make, monkeypatch):
    monkeypatch.setattr(module, "TIDY_EVERY", 1)
    store = make(max_bytes=40_000)
    store.put(response("b", "b", at=0.0))
    for number in range(100):
        store.put(response(f"a{number}", at=float(number) / 10))
    assert store.get("b", "b", 10.0) is not None
    assert store.get("a0", "a", 10.0) is None
    assert store.get("a99", "a", 10.0) is not None
    kept = sum(store.get(f"a{number}", "a", 10.0) is not None for number in range(100))
    assert 20 <= kept <= 40
