"""Which adapters vLLM's workers are told of, and when: not while they compute."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from engines.adapters.folder import AdapterFolder
from engines.adapters.places import Places
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.vllm_engine.adapters.loader import ENABLING, InTurn, VllmAdapters, arguments
from tests.engines.adapters.writing import write_adapter
from tests.engines.contract.computers import FOLDER

DEADLINE_S = 10


class Workers:
    """What each was told; ``fault`` is what one says of whatever it is told next."""

    def __init__(self, turn: InTurn, num_workers: int) -> None:
        self.told: list[tuple[str, int, bool]] = []
        self.fault = ""
        self._turn = turn
        self._num_workers = num_workers

    def collective_rpc(self, method: str, *, args: tuple[Any, ...]) -> list[Any]:
        self.told.append((method, args[0], self._turn._lock.locked()))
        return [self.fault, *([""] * (self._num_workers - 1))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> AdapterFolder:
    return AdapterFolder.read(write_adapter(tmp_path_factory.mktemp("adapters") / "a", ModelConfig.load(FOLDER)))


@pytest.fixture
def made() -> Callable[[int], tuple[VllmAdapters, Workers, InTurn]]:
    def make(num_workers: int = 1) -> tuple[VllmAdapters, Workers, InTurn]:
        turn = InTurn()
        workers = Workers(turn, num_workers)
        return VllmAdapters(workers, turn, 8, num_workers), workers, turn

    return make


@pytest.mark.parametrize(("num_workers", "reads_in_turn"), [(1, False), (2, True)])
def test_files_are_read_beside_steps_only_in_this_process(made, folder, num_workers: int, reads_in_turn: bool):
    adapters, workers, _ = made(num_workers)
    adapters.add("chat", "a", folder)
    assert workers.told == [("read_adapter", 1, reads_in_turn), ("place_adapter", 1, True)]
    assert (adapters.number("a"), adapters.number("")) == (1, 0)


def test_what_is_removed_makes_room_for_the_next_one(made, folder):
    adapters, workers, turn = made()
    adapters.add("chat", "a", folder)
    with turn.held():  # a step is computed: nobody waits for it
        adapters.remove("chat", "a")
        adapters.remove("chat", "unknown")
    adapters.add("chat", "b", folder)
    assert workers.told[2:] == [("read_adapter", 2, False), ("drop_adapter", 1, True), ("place_adapter", 2, True)]
    assert adapters.number("b") == 2
    with pytest.raises(KeyError):
        adapters.number("a")


def test_one_that_workers_refuse_is_forgotten_and_its_name_is_free(made, folder):
    adapters, workers, _ = made(2)
    workers.fault = "layers.9.mlp.up_proj is no projection of its own in this model"
    with pytest.raises(ModelError, match=r"/a: layers\.9\.mlp\.up_proj is no projection"):
        adapters.add("chat", "a", folder)
    workers.fault = ""
    adapters.forget_gone()
    assert workers.told[-1][:2] == ("drop_adapter", 1)
    adapters.add("chat", "a", folder)
    assert adapters.number("a") == 2


def test_a_rank_beyond_its_places_is_refused_unread(made, tmp_path: Path):
    adapters, workers, _ = made()
    large = AdapterFolder.read(write_adapter(tmp_path / "large", ModelConfig.load(FOLDER), 9))
    with pytest.raises(ModelError, match=r"/large: has rank 9, and chat takes up to 8"):
        adapters.add("chat", "a", large)
    assert not workers.told


def test_who_waits_for_a_turn_has_the_next_one():
    """Steps that follow one another at once would keep others away from a plain lock."""
    turn, waits, has = InTurn(), Event(), Event()

    def other() -> None:
        waits.set()
        with turn.held():
            has.set()

    with turn.held():
        thread = Thread(target=other)
        thread.start()
        assert waits.wait(DEADLINE_S)
        while not turn._next.locked():
            assert thread.is_alive()
    with turn.held():
        assert has.is_set()
    thread.join(DEADLINE_S)


def test_vllm_is_told_of_places_by_options_that_nobody_else_sets():
    told = arguments(Places(rank=32, count=3, place_bytes=1), ["q_proj"])
    assert told.keys() - set(ENABLING) == {"max_lora_rank"}
    assert (told["max_loras"], told["max_cpu_loras"], told["max_lora_rank"]) == (3, 3, 32)
    assert arguments(None, []) == {}
