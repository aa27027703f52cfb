"""Searches in a process of their own: they answer as a search here does, and end with whoever asked."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

import psutil
import pytest

from mesh.topology.schema import PolicySpec, Slo
from mesh.wire.status import ServiceTally
from router.placement.observe.conduct import Conduct
from router.placement.observe.running_mesh import present_plan
from router.placement.observe.service_monitor import Observed
from router.placement.search import search_process as searching
from router.placement.search.question import SearchFailed, answer, make_question
from router.placement.search.search_process import Searcher
from simulation.placement.evaluator import Simulated
from tests.router.cluster import M0, make_status

DEADLINE_S = 60.0
CONDUCT = Conduct(PolicySpec("join_shortest_queue"))


HELD = {"e0": ["a"], "e1": ["b"]}
MANY = {f"e{number}": ["ab"[number % 2]] for number in range(12)}


def question(improve_s=0.0, num_tokens=10, held=HELD, per_engine=20):
    """b needs more than the engines that it has."""
    engines = {name: make_status(M0, services=services) for name, services in held.items()}
    tallies = {"a": 2, "b": per_engine * len(held)}
    counted = {
        name: ServiceTally(name, n, n * num_tokens, n * num_tokens**2, n, 0, n, n * 20, n * 400, 0.3 * n)
        for name, n in tallies.items()
    }
    slos = dict.fromkeys(counted, Slo(0.2, 0.02))
    observed = Observed(10.0, counted)
    return make_question(1, present_plan(engines), engines.values(), observed, slos, CONDUCT, improve_s=improve_s)


class Here:
    def evaluator(self, catalogue, traffic, slos, conduct):
        return Simulated(catalogue, traffic, slos, conduct=conduct)

    def close(self):
        pass


def endless():
    """Local search on so many engines would take for ever."""
    return question(improve_s=600.0, held=MANY, per_engine=60)


@pytest.fixture
async def searcher():
    searcher = Searcher(1)
    yield searcher
    await searcher.close()


async def test_answers_come_back_as_they_were_and_what_fits_nowhere_is_one_too(searcher):
    found = await asyncio.wait_for(searcher.search(question()), DEADLINE_S)
    assert found == answer(question(), Here(), lambda _: True)
    assert found.proposal.plan.services == {"a", "b"}
    assert found.proposal.wanted.rank >= found.proposal.present.rank
    found = await asyncio.wait_for(searcher.search(question(num_tokens=5000)), DEADLINE_S)
    assert isinstance(found, SearchFailed)
    assert "a: its longest requests take" in found.reason


async def test_one_process_is_there_before_the_first_question_and_answers_them_all(searcher):
    await searcher.start()
    process = searcher._process
    answers = [await asyncio.wait_for(searcher.search(question()), DEADLINE_S) for _ in range(2)]
    assert answers[0] == answers[1]
    assert searcher._process is process
    assert process.returncode is None
    await searcher.close()
    assert process.returncode == -signal.SIGKILL


async def test_a_process_that_dies_is_told_and_another_one_takes_its_place(searcher, monkeypatch):
    await searcher.start()
    searcher._process.kill()
    await searcher._process.wait()
    assert not isinstance(await asyncio.wait_for(searcher.search(question()), DEADLINE_S), SearchFailed)
    await searcher.close()
    monkeypatch.setattr(searching.sys, "executable", "/bin/false")
    found = await searcher.search(question())
    assert found == SearchFailed("its process ended with code 1")


def _searches(of: int, but: Collection[psutil.Process] = ()) -> list[psutil.Process]:
    """Processes below that one, ``but`` those that were there before."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(of).children(recursive=True)
        return [one for one in found if one.is_running() and one not in but]
    return []


def _until_none_lives(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    assert alive == []


async def test_a_search_that_nobody_waits_for_ends_with_its_workers():
    others, searcher = _searches(os.getpid()), Searcher(2)
    task = asyncio.create_task(searcher.search(endless()))
    deadline = time.monotonic() + DEADLINE_S
    while len(found := _searches(os.getpid(), others)) < 2 or min(one.nice() for one in found) < searching.NICENESS:
        assert time.monotonic() < deadline  # a process that has just begun is not nice yet
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(_until_none_lives, found)


ASKS = """
import asyncio
from router.placement.search.search_process import Searcher
from tests.router.placement.search.test_search_process import endless
asyncio.run(Searcher(2).search(endless()))
"""


async def test_a_search_ends_when_whoever_asked_is_killed():
    asking = await asyncio.create_subprocess_exec(sys.executable, "-c", ASKS)
    deadline = time.monotonic() + DEADLINE_S
    while len(found := _searches(asking.pid)) < 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    os.kill(asking.pid, signal.SIGKILL)
    await asking.wait()
    await asyncio.to_thread(_until_none_lives, found)
