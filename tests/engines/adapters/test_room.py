"""Which adapters an engine loads, drops and closes, and which requests wait for that."""

from collections.abc import Sequence

import pytest

from engines.adapters.places import AdapterSizes
from engines.adapters.room import MOST_HINTS, MOST_LOADING, RETRY_S, AdapterOrder, AdapterRoom
from engines.effects import DropAdapter, LoadAdapter
from engines.engine_request import EngineRequest
from mesh.wire.adapters import LoraAdapter
from tests.engines.conftest import MakeSequence

SIZES = AdapterSizes("bfloat16")  # two bytes a weight
BYTES = 100


def adapter(name: str, num_bytes: int = BYTES) -> LoraAdapter:
    return LoraAdapter(name, f"/{name}", "0", num_bytes // 2)


class Room:
    """An adapter room, whose loads end when a test says so."""

    def __init__(self, make_sequence: MakeSequence, num_adapters: int = 2) -> None:
        self.room = AdapterRoom(num_adapters * BYTES)
        self._make = make_sequence

    def ask(self, request: str, name: str) -> tuple[EngineRequest, bool]:
        """A request and whether it may be computed."""
        one = self._make(request, adapter=adapter(name))
        begun = self.room.begin(one, SIZES)
        return one, begun

    def orders(self) -> list[str]:
        return told(self.room.next_orders())

    def have(self, *names: str) -> None:
        """These are loaded, in this order."""
        for name in names:
            self.room.want(adapter(name), "tiny", SIZES)
            assert self.orders() == [f"load {name}"]
            self.loaded(name)

    def loaded(self, name: str) -> list[str]:
        """Requests that may begin."""
        ready = [request.id for request in self.room.loaded(adapter(name).key)]
        self.room.check_invariants()
        return ready


def told(orders: Sequence[AdapterOrder]) -> list[str]:
    words = {LoadAdapter: "load", DropAdapter: "drop"}
    keys = [one.adapter.key if isinstance(one, LoadAdapter) else one.key for one in orders]
    return [f"{words[type(one)]} {key.partition('@')[0]}" for one, key in zip(orders, keys, strict=True)]


@pytest.fixture
def two(make_sequence: MakeSequence) -> Room:
    """Room for two adapters."""
    return Room(make_sequence)


def test_a_request_without_an_adapter_begins_at_once(two: Room, make_sequence: MakeSequence):
    assert two.room.begin(make_sequence("plain"), SIZES)
    assert two.room.is_empty


def test_a_request_waits_until_its_adapter_is_here(two: Room):
    assert [two.ask(name, "a")[1] for name in ("r0", "r1")] == [False, False]
    assert two.orders() == ["load a"]
    assert two.orders() == []
    assert two.loaded("a") == ["r0", "r1"]
    assert two.ask("r2", "a")[1]


def test_the_longest_unused_adapter_goes_for_a_new_one(two: Room):
    two.have("a", "b")
    one, begun = two.ask("r", "a")
    two.room.ended(one)
    assert begun
    two.room.want(adapter("c"), "tiny", SIZES)
    assert two.orders() == ["drop b", "load c"]
    assert two.room.held_bytes == 2 * BYTES


def test_used_adapters_stay_and_the_longest_held_one_takes_nobody_new(two: Room):
    two.have("a", "b")
    used, _ = two.ask("r0", "a")
    two.ask("r1", "b")
    two.ask("r2", "c")
    assert two.orders() == []
    assert [two.ask("r3", "a")[1], two.ask("r4", "b")[1]] == [False, True]
    two.room.ended(used)
    assert two.orders() == ["drop a", "load c"]
    two.room.check_invariants()


def test_who_waited_for_a_closed_adapter_gets_it_back_after_those_before(two: Room):
    two.have("a", "b")
    first, second = two.ask("r0", "a")[0], two.ask("r1", "b")[0]
    two.ask("r2", "c")
    two.orders()
    two.ask("r3", "a")
    two.room.ended(first)
    assert two.orders() == ["drop a", "load c"]
    assert two.loaded("c") == ["r2"]
    two.room.ended(second)
    assert two.orders() == ["drop b", "load a"]
    assert two.loaded("a") == ["r3"]


def test_nothing_is_loaded_for_a_request_that_left_before_its_turn(two: Room):
    waiting, _ = two.ask("r", "a")
    two.room.ended(waiting)
    assert two.orders() == []
    assert two.room.is_empty


def test_an_adapter_beyond_all_memory_is_refused_and_never_loaded(two: Room, make_sequence: MakeSequence):
    huge = make_sequence("r", adapter=adapter("huge", 3 * BYTES)).spec
    assert two.room.why_not(huge, SIZES, 0.0) == "adapter huge takes 0.00 MiB, beyond adapter_memory"
    two.room.expect(huge, SIZES)
    assert two.orders() == []
    exact = make_sequence("r", adapter=adapter("exact", 2 * BYTES)).spec
    assert two.room.why_not(exact, SIZES, 0.0) is None


def test_what_could_not_be_loaded_is_tried_again_after_a_while(two: Room):
    waiting, _ = two.ask("r", "a")
    two.orders()
    assert two.room.not_loaded(adapter("a").key, "damaged", 5.0) == [waiting]
    assert two.room.why_not(waiting.spec, SIZES, 5.0 + RETRY_S - 0.1) == "damaged"
    assert two.room.why_not(waiting.spec, SIZES, 5.0 + RETRY_S) is None


def test_loads_at_a_time_and_hints_are_bounded(make_sequence: MakeSequence):
    many = Room(make_sequence, 2 * MOST_HINTS)
    for number in range(2 * MOST_HINTS):
        many.room.hint(adapter(f"a{number}"), "tiny", SIZES)
    assert len(many.orders()) == MOST_LOADING
    num_loaded = MOST_LOADING
    for number in range(2 * MOST_HINTS):
        if number < num_loaded:
            many.loaded(f"a{number}")
            num_loaded += len(many.orders())
    assert num_loaded == MOST_HINTS


def test_adapters_of_a_base_that_goes_go_with_it(two: Room):
    two.have("a")
    two.room.want(adapter("b"), "other", SIZES)
    two.orders()
    two.loaded("b")
    assert told(two.room.forget("tiny")) == ["drop a"]
    assert two.room.names() == ["b"]


def test_an_adapter_that_is_no_more_goes_once_nobody_uses_it(two: Room):
    two.have("a")
    used, _ = two.ask("r", "a")
    two.room.unload("a")
    assert two.orders() == []
    assert two.room.is_used("tiny")
    two.room.ended(used)
    assert two.orders() == ["drop a"]
