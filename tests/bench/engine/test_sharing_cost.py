"""Whose iterations are counted when an engine decodes for one service, and for two in turns."""

from pathlib import Path

import pytest

from bench.engine.sharing_cost import Cost, Round, decode, measure
from bench.models.tiny_llama import write_tiny_model
from bench.peers.core_engine import CoreEngine

NUM_STEPS = 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("models")
    return {name: str(write_tiny_model(folder / name, seed)) for seed, name in enumerate("ab")}


@pytest.fixture(scope="module")
def engine(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> CoreEngine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return CoreEngine(models, "float32", threads=1)


def test_alone_every_decode_step_counts(engine: CoreEngine):
    calls: list[None] = []
    found = decode(engine, ["a"], 2, NUM_STEPS, lambda: calls.append(None))
    assert set(found) == {"a"}
    assert NUM_STEPS - 2 <= len(found["a"]) <= NUM_STEPS <= len(calls)
    assert all(seconds > 0 for seconds in found["a"])


def test_with_two_services_steps_count_that_follow_one_of_the_other(engine: CoreEngine):
    found = decode(engine, ["a", "b"], 2, NUM_STEPS)
    assert set(found) == {"a", "b"}
    assert all(NUM_STEPS - 3 <= len(iterations) <= NUM_STEPS for iterations in found.values())


def test_costs_are_told_of_each_and_of_both(engine: CoreEngine, models: dict[str, str]):
    both, a, b = measure(engine, models, 2, NUM_STEPS, 1)
    assert (both.what, a.what, b.what) == ("both", "a", "b")
    assert both.usual.shared == pytest.approx(a.usual.shared + b.usual.shared)
    assert min(a.usual.alone, a.usual.swept, a.usual.shared) > 0


def test_ratios_are_medians_of_rounds():
    rounds = [Round(1.0, 2.0, 2.0), Round(2.0, 2.0, 3.0), Round(4.0, 4.0, 4.0)]
    assert Cost.of("x", rounds) == Cost("x", Round(2.0, 2.0, 3.0), 1.5, 1.0)
