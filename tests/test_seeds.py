import inspect

import pytest

from tests.seeds import each_seed, seeds


@pytest.fixture(autouse=True)
def _by_day(monkeypatch):
    monkeypatch.delenv("SEEDS", raising=False)
    monkeypatch.delenv("SEED", raising=False)


def test_a_test_runs_with_each_seed():
    ran = []

    @each_seed(3)
    def test(number, seed):
        ran.append((number, seed))

    test(number=7)
    assert ran == [(7, 0), (7, 1), (7, 2)]
    assert list(inspect.signature(test).parameters) == ["number"]


async def test_a_coroutine_runs_with_each_seed():
    ran = []

    @each_seed(2)
    async def test(seed):
        ran.append(seed)

    await test()
    assert ran == [0, 1]


def test_a_failure_names_its_seed_and_ends_the_test():
    ran = []

    @each_seed(5)
    def test(seed):
        ran.append(seed)
        assert seed < 2

    with pytest.raises(AssertionError) as failure:
        test()
    assert failure.value.__notes__ == ["with seed 2: SEED=2 runs it alone"]
    assert ran == [0, 1, 2]


def test_a_seed_runs_alone(monkeypatch):
    ran = []
    monkeypatch.setenv("SEED", "41")

    @each_seed(5)
    def test(seed):
        ran.append(seed)

    test()
    assert ran == [41]


def test_there_are_more_at_night(monkeypatch):
    monkeypatch.setenv("SEEDS", "10")
    ran = []

    @each_seed(3)
    def more(seed):
        ran.append(seed)

    @each_seed(3, most=7)
    def few_more(seed):
        ran.append(seed)

    @each_seed(range(2))
    def the_same(seed):
        ran.append(seed)

    for test, expected in ((more, 30), (few_more, 7), (the_same, 2)):
        ran.clear()
        test()
        assert ran == list(range(expected))
    assert seeds(3) == range(30)
