"""Whose iterations are counted when an engine decodes for one service, and for two in turns."""

from pathlib import Path

import pytest

from bench.sharing_cost import Cost, Round, SharedEngine, measure
from bench.tiny_model import write_tiny_model

NUM_STEPS = 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("models")
    return {name: str(write_tiny_model(folder / name, seed)) for seed, name in enumerate("ab")}


@pytest.fixture(scope="module")
def engine(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> SharedEngine:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHSERVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        return SharedEngine(models, threads=1)


def test_alone_every_decode_step_counts(engine: SharedEngine) -> None:
    calls: list[None] = []
    found = engine.decode(["a"], 2, NUM_STEPS, lambda: calls.append(None))
    assert set(found) == {"a"}
    assert NUM_STEPS - 2 <= len(found["a"]) <= NUM_STEPS <= len(calls)
    assert all(seconds > 0 for seconds in found["a"])


def test_with_two_services_steps_count_that_follow_one_of_the_other(engine: SharedEngine) -> None:
    found = engine.decode(["a", "b"], 2, NUM_STEPS)
    assert set(found) == {"a", "b"}
    assert all(NUM_STEPS - 3 <= len(seconds) <= NUM_STEPS for seconds in found.values())


def test_costs_are_told_of_each_and_of_both(engine: SharedEngine, models: dict[str, str]) -> None:
    both, a, b = measure(engine, models, 2, NUM_STEPS, 1)
    assert (both.what, a.what, b.what) == ("both", "a", "b")
    assert both.alone_ms == pytest.approx(a.alone_ms + b.alone_ms)
    assert both.shared_ms == pytest.approx(a.shared_ms + b.shared_ms)


def test_ratios_are_medians_of_rounds() -> None:
    rounds = [Round(1.0, 2.0, 2.0), Round(2.0, 2.0, 3.0), Round(4.0, 4.0, 4.0)]
    assert Cost.of("x", rounds) == Cost("x", 2.0, 2.0, 3.0, 1.5, 1.0)
