"""Searches in processes of their own: they answer as a search here does, and end with whoever asked."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress

import psutil
import pytest

from bench.simulation.placing import Simulated
from mesh.messages import ServiceTally
from mesh.topology.schema import Slo
from router.placement import searching
from router.placement.live import present_plan
from router.placement.monitor import Observed
from router.placement.question import SearchFailed, answer, make_question
from router.placement.searching import search_beside
from tests.router.cluster import M0, make_status

DEADLINE_S = 60.0


def question(improve_s=0.0, num_tokens=10):
    """b needs more than the one engine that it has."""
    engines = {name: make_status(M0, services=held) for name, held in {"e0": ["a"], "e1": ["b"]}.items()}
    tallies = {"a": 2, "b": 40}
    counted = {
        name: ServiceTally(name, n, n * num_tokens, n * num_tokens**2, n, 0, n, n * 20, n * 400, 0.3 * n)
        for name, n in tallies.items()
    }
    slos = dict.fromkeys(counted, Slo(0.2, 0.02))
    return make_question(1, present_plan(engines), engines.values(), Observed(10.0, counted), slos, improve_s=improve_s)


class Here:
    def evaluator(self, catalogue, traffic, slos):
        return Simulated(catalogue, traffic, slos)

    def close(self):
        pass


async def test_an_answer_comes_back_as_it_was():
    found = await asyncio.wait_for(search_beside(question(), 1), DEADLINE_S)
    assert found == answer(question(), Here(), lambda _: True)
    assert found.proposal.plan.services == {"a", "b"}
    assert found.proposal.wanted.rank >= found.proposal.present.rank


async def test_what_fits_nowhere_is_an_answer_too():
    found = await asyncio.wait_for(search_beside(question(num_tokens=5000), 1), DEADLINE_S)
    assert isinstance(found, SearchFailed)
    assert "a: its longest requests take" in found.reason


async def test_a_process_that_dies_is_told(monkeypatch):
    monkeypatch.setattr(searching.sys, "executable", "/bin/false")
    found = await search_beside(question(), 1)
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
    others = _searches(os.getpid())
    task = asyncio.create_task(search_beside(question(improve_s=600.0), 2))
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
from router.placement.searching import search_beside
from tests.router.placement.test_searching import question
asyncio.run(search_beside(question(improve_s=600.0), 2))
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
