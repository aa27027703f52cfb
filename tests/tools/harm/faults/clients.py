"""Clients go away at every stage, read slowly, or ask for too much."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from tests.tools.harm.clients import Client
from tests.tools.harm.faults.trial import LONG_PROMPT, Trial
from tests.tools.harm.harm import Harm
from tests.tools.harm.meshes import RELAYED, WORDY_MODEL
from tests.tools.harm.relay import Passing, Which, hold, is_migration, is_transfer
from tests.tools.harm.running import until
from tests.tools.harm.watch import own

MANY = 200
SLOW_TOKENS = 1200
PAUSE_S = 10.0
FREED_S = 1.0
MEMORY_LIMIT = 32 * 2**20  # bytes that a gateway may grow by for four clients that do not read


async def cancel_queued(trial: Trial) -> None:
    await trial.background()
    asks = trial.asks(24, tokens=16, prompt=LONG_PROMPT)
    ahead, leavers = trial.start(asks[:12]), trial.start(asks[12:])
    await asyncio.sleep(0.15)
    await _leave(trial, [one for one in leavers if not one.pieces], "queued")
    trial.expect(any(not one.pieces for one in ahead), "others were before them in the queue")


async def cancel_decode(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(8))
    await trial.decoding(leavers)
    await _leave(trial, leavers, "in_decode")


async def cancel_many(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(MANY, tokens=100, prompt=(16, 128)))
    await asyncio.sleep(1.5)
    await _leave(trial, leavers, "at_once")


async def _leave(trial: Trial, leavers: list[Client], note: str) -> None:
    """They leave, and engines soon run only what is for those who stay."""
    trial.leave(leavers, note)

    def is_freed() -> bool:
        held = sum(status.num_running + status.num_waiting for status in trial.mesh.observer.engines().values())
        staying = [one for one in trial.clients if not (one.is_over or one.has_left)]
        return held <= len(trial.mesh.deployment.ports) + len(staying)  # a probe through each gateway

    await until(is_freed, "engines ran nothing for clients that have left", FREED_S)


async def cancel_transfer(trial: Trial) -> None:
    await trial.background()

    async def begin() -> list[Client]:
        return trial.start(trial.asks(1, tokens=64, prompt=LONG_PROMPT))

    for kind in ("Reserve", "Blocks", "Commit"):
        await _leave_at(trial, kind, begin, "in_transfer")


async def cancel_migration(trial: Trial) -> None:
    async def begin() -> list[Client]:
        streams = await trial.background(4)
        trial.migrate(streams[:1])
        return streams

    for kind in ("Reserve", "Blocks", "Commit", "Committed"):
        await _leave_at(trial, kind, begin, "in_migration", is_migration)
        await trial.all_over()


async def _leave_at(
    trial: Trial, kind: str, begin: Callable[[], Awaitable[list[Client]]], note: str, which: Which = is_transfer
) -> None:
    """The first client of those that begin leaves when such a message about its request passes."""
    leavers: list[Client] = []

    def is_due(message: Passing) -> bool:
        is_its = any(message.transfer.startswith(f"{one.name}-") for one in leavers)
        return message.kind == kind and is_its and bool(which(message))

    released = asyncio.Event()
    held = hold(is_due, released)
    async with trial.rule(held):
        leavers += (await begin())[:1]
        await until(lambda: held.happened.is_set() or leavers[0].is_over, f"a request is {note}")
        if held.happened.is_set():
            trial.leave(leavers, note)
        await asyncio.sleep(0.2)
        released.set()
        await asyncio.sleep(0.1)


async def slow_client(trial: Trial) -> None:
    before = _memory(trial)
    slow = trial.start(trial.asks(4, tokens=SLOW_TOKENS), model=WORDY_MODEL, is_slow=True)
    for one in slow:
        one.may_read.set()
    await trial.decoding(slow)
    for one in slow:
        one.may_read.clear()
    pause = asyncio.create_task(asyncio.sleep(PAUSE_S))
    await trial.background()
    await pause
    grown = max(size - before[name] for name, size in _memory(trial).items())
    trial.notes["grown_mb"] = round(grown / 2**20, 1)
    trial.expect(grown < MEMORY_LIMIT, f"memory is bounded, grown by {grown}")
    for one in slow:
        one.may_read.set()


def _memory(trial: Trial) -> dict[str, int]:
    """Resident bytes of gateways."""
    return {gateway: own(trial.mesh.pid(gateway)) for gateway in trial.mesh.deployment.gateways}


_c = partial(Harm, "clients")
_r = partial(_c, mesh=RELAYED)
FAULTS = (
    _c("cancel-queued", cancel_queued, "clients leave while their requests are queued"),
    _r("cancel-transfer", cancel_transfer, "clients leave while their KV is under way", in_short=True),
    _c("cancel-decode", cancel_decode, "clients leave in mid-stream"),
    _r("cancel-migration", cancel_migration, "clients leave while their requests migrate"),
    _c("cancel-200", cancel_many, f"{MANY} clients leave at once"),
    _c("slow-client", slow_client, f"four clients do not read for {PAUSE_S:g} s; others go on, memory is bounded"),
)
