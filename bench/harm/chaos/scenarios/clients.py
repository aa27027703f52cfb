"""Clients go away at every stage, read slowly, or ask for too much."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import psutil

from bench.harm.chaos.meshes import MAX_CONTEXT, MODEL, RELAYED, WORDY_MODEL
from bench.harm.chaos.trial import LONG_PROMPT, Trial, scenario
from bench.harm.clients import Client, Visit
from bench.harm.rules import Hold, Passing, is_migration
from bench.harm.running import until

MANY = 200
SLOW_TOKENS = 1200
PAUSE_S = 10.0
FREED_S = 1.0
MEMORY_LIMIT = 32 * 2**20  # bytes that a gateway may grow by for four clients that do not read


async def cancel_queued(trial: Trial) -> None:
    await trial.background()
    trial.fault()
    asks = trial.asks(24, tokens=16, prompt=LONG_PROMPT)
    ahead, leavers = trial.start(asks[:12]), trial.start(asks[12:])
    await asyncio.sleep(0.15)
    await _leave(trial, [one for one in leavers if not one.visit.pieces], "queued")
    trial.expect(any(not one.visit.pieces for one in ahead), "others were before them in the queue")


async def cancel_prefill(trial: Trial) -> None:
    await trial.background()
    trial.fault()
    for _ in range(4):
        [leaver] = trial.start(trial.asks(1, tokens=16, prompt=LONG_PROMPT))
        await until(partial(_is_prefilling, trial, leaver), "its prompt is computed", 10.0)
        await _leave(trial, [leaver] if not leaver.visit.pieces else [], "in_prefill")
    trial.expect(trial.notes.get("in_prefill"), "at least one left in time")


def _is_prefilling(trial: Trial, client: Client) -> bool:
    statuses = trial.mesh.observer.engines().values()
    return any(status.prefill_remaining_s > 0 for status in statuses) or bool(client.visit.pieces)


async def cancel_decode(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(8))
    await trial.decoding(leavers)
    trial.fault()
    await _leave(trial, leavers, "in_decode")


async def cancel_many(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(MANY, tokens=100, prompt=(16, 128)))
    await asyncio.sleep(1.5)
    trial.fault()
    await _leave(trial, leavers, "at_once")


async def _leave(trial: Trial, leavers: list[Client], note: str) -> None:
    """They leave, and engines soon run only what is for those who stay."""
    trial.leave(leavers, note)

    def is_freed() -> bool:
        held = sum(status.num_running + status.num_waiting for status in trial.mesh.observer.engines().values())
        staying = [one.visit for one in trial.clients if not (one.visit.is_over or one.visit.has_left)]
        return held <= len(trial.mesh.deployment.ports) + len(staying)  # a probe through each gateway

    await until(is_freed, "engines ran nothing for clients that have left", FREED_S)


async def cancel_transfer(trial: Trial) -> None:
    await trial.background()
    trial.fault()

    async def begin() -> list[Client]:
        return trial.start(trial.asks(1, tokens=64, prompt=LONG_PROMPT))

    for kind in ("Reserve", "Blocks", "Commit"):
        await _leave_at(trial, lambda message: message.kind == kind, begin, "in_transfer")  # noqa: B023


async def cancel_migration(trial: Trial) -> None:
    async def begin() -> list[Client]:
        streams = await trial.background(4)
        trial.fault()
        trial.migrate(streams[:1])
        return streams

    for kind in ("Reserve", "Blocks", "Commit", "Committed"):
        is_due: Callable[[Passing], bool] = lambda message: message.kind == kind and is_migration(message)  # noqa: B023, E731
        await _leave_at(trial, is_due, begin, "in_migration")
        await trial.all_over()


async def _leave_at(
    trial: Trial, is_due: Callable[[Passing], bool], begin: Callable[[], Awaitable[list[Client]]], note: str
) -> None:
    """The first client of those that begin leaves when such a message about its request passes."""
    leavers: list[Client] = []
    hold = Hold(lambda message: is_due(message) and any(_is_of(one.visit, message) for one in leavers))
    async with trial.rule(hold):
        leavers += (await begin())[:1]
        await until(lambda: hold.happened.is_set() or leavers[0].visit.is_over, f"a request is {note}")
        if hold.happened.is_set():
            trial.leave(leavers, note)
        await asyncio.sleep(0.2)
        hold.release()
        await asyncio.sleep(0.1)


def _is_of(visit: Visit, message: Passing) -> bool:
    return message.transfer.startswith(f"{visit.name}-")


async def slow_client(trial: Trial) -> None:
    before = _memory(trial)
    slow = trial.start(trial.asks(4, tokens=SLOW_TOKENS), model=WORDY_MODEL, is_slow=True)
    for one in slow:
        one.may_read.set()
    await trial.decoding(slow)
    trial.fault()
    for one in slow:
        one.may_read.clear()
    pause = asyncio.create_task(asyncio.sleep(PAUSE_S))
    await trial.background()
    await pause
    grown = max(size - before.get(name, 0) for name, size in _memory(trial).items())
    trial.notes["grown_mb"] = round(grown / 2**20, 1)
    trial.expect(grown < MEMORY_LIMIT, f"memory is bounded, grown by {grown}")
    for one in slow:
        one.may_read.set()


def _memory(trial: Trial) -> dict[str, int]:
    """Resident bytes of gateways that are alive."""
    found = {}
    for gateway in trial.mesh.deployment.gateways:
        with suppress(psutil.NoSuchProcess):
            found[gateway] = int(psutil.Process(trial.mesh.pid(gateway)).memory_info().rss)
    return found


async def too_long(trial: Trial) -> None:
    streams = await trial.background()
    trial.fault()
    asks = trial.asks(4, tokens=8, prompt=(2 * MAX_CONTEXT, 2 * MAX_CONTEXT))
    port = trial.mesh.deployment.ports[0]
    answers = await asyncio.gather(*(Client(Visit("apart", port, ask), MODEL).run() for ask in asks))
    trial.expect(all(visit.status == 400 for visit in answers), f"400, not {[visit.status for visit in answers]}")
    trial.note(refused_with_400=sum(visit.status == 400 for visit in answers))
    trial.expect(any(not one.visit.is_over for one in streams), "others went on meanwhile")


client = partial(scenario, "clients")
SCENARIOS = (
    client("cancel-queued", "clients leave while their requests are queued", cancel_queued),
    client("cancel-prefill", "clients leave while their prompts are computed", cancel_prefill),
    client("cancel-transfer", "clients leave while their KV is on its way", cancel_transfer, RELAYED, in_short=True),
    client("cancel-decode", "clients leave in mid-stream", cancel_decode),
    client("cancel-migration", "clients leave while their requests migrate", cancel_migration, RELAYED),
    client("cancel-200", f"{MANY} clients leave at once", cancel_many),
    client("slow-client", f"four clients do not read for {PAUSE_S:g} s; others go on, memory is bounded", slow_client),
    client("too-long", "prompts of twice the limit among normal ones: 400 for those", too_long),
)
