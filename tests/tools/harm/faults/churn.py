"""Everything at once for a while, after which memory and blocks are where they began."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from random import Random

from tests.tools.harm.clients import Client
from tests.tools.harm.faults.trial import Trial
from tests.tools.harm.harm import Harm
from tests.tools.harm.running import WaitedInVainError
from tests.tools.harm.watch import own

WORKERS = 8
WARM_UP_S, SHORT_WARM_UP_S = 10.0, 2.0
EVENT_EVERY_S = (1.0, 4.0)
STOP_S = (0.2, 2.5)
LEAVE_SHARE = 0.1
MORTAL = ("prefill", "decode-1")  # the others live through it, so that their memory tells of leaks
# A gateway remembers its last 4096 requests for `mesh explain`: by design it grows until there are so many.
STORIES, STORY_BYTES = 4096, 16 * 2**10
EVENTS = ("kill", "stop", "migrate", "migrate", "leave")
MEMORY_SLACK = 8 * 2**20
HANDLE_SLACK = 16


async def churn(trial: Trial) -> None:
    """Load has its own stream of random numbers, events have another."""
    load, events = Random(trial.random.random()), Random(trial.random.random())
    await trial.stop_probing()
    await _serve(trial, load, SHORT_WARM_UP_S if trial.is_short else WARM_UP_S)
    await trial.mesh.rest()
    before = _footprints(trial)
    happening = asyncio.create_task(_make_trouble(trial, events))
    try:
        num_requests = await _serve(trial, load, trial.churn_s)
    finally:
        happening.cancel()
        await asyncio.gather(happening, return_exceptions=True)
    for pid in trial.mesh.observer.pids().values():
        trial.mesh.signal(pid, signal.SIGCONT)
    await trial.mesh.rest()
    await asyncio.sleep(1.0)
    _compare(trial, before, num_requests)


async def _serve(trial: Trial, random: Random, for_s: float) -> int:
    """Closed loop: each of some workers sends its next request when its last one has ended. Return how many it were."""
    ends_at = time.monotonic() + for_s

    async def work() -> int:
        num_requests = 0
        while time.monotonic() < ends_at:
            num_requests += 1
            await _one(trial, random)
        return num_requests

    return sum(await asyncio.gather(*(work() for _ in range(WORKERS))))


async def _one(trial: Trial, random: Random) -> None:
    [ask] = trial.asks(1, tokens=random.randint(8, 160), prompt=(8, 700), stream=random.random() < 0.8)
    client = Client(f"c{random.getrandbits(64):x}", random.choice(trial.mesh.deployment.ports), ask)
    trial.clients.append(client)
    running = asyncio.create_task(client.run())
    if random.random() < LEAVE_SHARE:
        await asyncio.wait([running], timeout=random.uniform(0.0, 1.5))
        client.leave()
    await running
    trial.clients.remove(client)
    await trial.judge(client)


async def _make_trouble(trial: Trial, random: Random) -> None:
    mesh = trial.mesh
    while True:
        await asyncio.sleep(random.uniform(*EVENT_EVERY_S))
        with suppress(WaitedInVainError):  # who was to be hit is dead already
            match random.choice(EVENTS):
                case "kill" if all(map(mesh.observer.is_ready, mesh.deployment.engines)):
                    mesh.kill(random.choice(MORTAL))
                    trial.note(kills=1)
                case "stop":
                    await mesh.stop(random.choice(mesh.deployment.engines), random.uniform(*STOP_S))
                    trial.note(stops=1)
                case "migrate":
                    movable = [client for client in trial.clients if client.answer_id and not client.is_over]
                    trial.migrate(chosen := random.sample(movable, min(3, len(movable))))
                    trial.note(migrations=len(chosen))
                case "leave":
                    trial.leave(random.sample(trial.clients, len(trial.clients) // 2), "cancels")


def _footprints(trial: Trial) -> dict[tuple[str, int], tuple[int, int]]:
    """Resident bytes and open files of all processes, by name and pid."""
    pids = trial.mesh.observer.pids().items()
    return {(name, pid): (own(pid), len(os.listdir(f"/proc/{pid}/fd"))) for name, pid in pids}


def _compare(trial: Trial, before: dict[tuple[str, int], tuple[int, int]], num_requests: int) -> None:
    """Of processes that are still in the same life."""
    after, gateways = _footprints(trial), trial.mesh.deployment.gateways
    lived = sorted(before.keys() & after.keys())
    trial.expect(set(gateways) <= {name for name, _ in lived}, "the gateways lived through it")
    for name, pid in lived:
        (began, files), (ended, files_now) = before[name, pid], after[name, pid]
        trial.notes[f"{name}_mb"] = f"{began / 2**20:.1f} -> {ended / 2**20:.1f}"
        stories = min(num_requests, STORIES) * STORY_BYTES if name in gateways else 0
        trial.expect(ended - began <= MEMORY_SLACK + stories, f"{name} grew by {(ended - began) / 2**20:.1f} MB")
        trial.expect(files_now - files <= HANDLE_SLACK, f"{name} has {files_now - files} more files and sockets open")


TITLE = "random kills, stops, cancels and migrations under load; memory and blocks as before"
FAULTS = (Harm("everything", "churn", churn, TITLE, in_short=True),)
