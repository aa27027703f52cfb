"""Client processes: they share a load, say what happens, and stop when they are told to."""

import asyncio

import pytest

from bench.load.generator.crew import Crew, drive
from bench.load.generator.lag import Health
from bench.load.generator.wire import Assignment, Pace, Shape
from bench.load.prompts.planning import Plan
from mesh.errors import CommandError
from tests.bench.load.small import Asked, Server, assignment, server, stream_of


async def quick(asked: Asked) -> None:
    asked.writer.write(stream_of(["a", "b"], completion_tokens=2))


def parts(here: Server, plan: Plan, count: int) -> list[Assignment]:
    dealt = [plan.part(index, count) for index in range(count)]
    return [
        assignment(here.address, part.shapes, part.pace, first=index, step=count) for index, part in enumerate(dealt)
    ]


async def test_processes_send_each_request_once():
    plan = Plan(tuple(Shape("tiny", number + 1, 2) for number in range(11)), Pace((0.01,) * 11))
    heard: list[int] = []
    async with server(quick) as here:
        crew = await drive(parts(here, plan, 2), asyncio.Event(), lambda crew: heard.append(len(crew.outcomes)))
    outcomes = sorted(crew.outcomes, key=lambda one: one.number)
    assert [one.number for one in outcomes] == list(range(11))
    assert [one.asked_input_tokens for one in outcomes] == list(range(1, 12))
    assert all(one.is_finished for one in outcomes)
    assert heard[-1] == 11
    assert (crew.num_sent, crew.num_in_flight, crew.num_cancelled) == (11, 0, 0)
    assert all(told.cpu_s > 0 for told in crew.told)


async def test_stopping_keeps_what_had_ended():
    stop = asyncio.Event()

    def hear(crew: Crew) -> None:
        if crew.outcomes and len(here.asked) == 2:
            stop.set()

    async def answer(asked: Asked) -> None:
        if len(here.asked) == 1:
            await quick(asked)
        else:
            await asyncio.Event().wait()

    plan = Plan((Shape("tiny", 4, 2),) * 3, Pace((0.0, 0.1, 60.0)))
    async with server(answer) as here:
        crew = await drive(parts(here, plan, 1), stop, hear)
    assert [one.number for one in crew.outcomes] == [0]
    assert crew.num_cancelled == 1


async def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: object):
    monkeypatch.setattr("bench.load.generator.crew.sys.executable", "/bin/false")
    async with server(quick) as here:
        with pytest.raises(CommandError, match="died"):
            await drive(parts(here, Plan((Shape("tiny", 4, 2),), Pace()), 1), asyncio.Event())


def test_a_generator_that_keeps_up_says_nothing():
    assert Health.of([0.3, 0.5], [0.001] * 100, [0.001] * 100).warnings(0.1) == []
    assert Health.of([], [], []).warnings(None) == []


@pytest.mark.parametrize(
    ("health", "named"),
    [
        (Health.of([0.3, 0.95], [0.0], [0.0]), "95% of a core"),
        (Health.of([0.3], [0.0] * 90 + [0.05] * 10, [0.0]), "50.0 ms late"),
        (Health.of([0.3], [0.0], [0.0] * 90 + [0.03] * 10), "up to 30.0 ms late"),
    ],
)
def test_a_generator_that_lags_says_how(health: Health, named: str):
    (line,) = health.warnings(1.0)
    assert named in line


def test_a_lag_counts_beside_what_is_measured():
    health = Health.of([0.3], [0.006] * 100, [0.0])
    assert health.warnings(0.05)
    assert not health.warnings(0.5)
