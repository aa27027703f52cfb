"""Clients go away at every stage, read slowly, or ask for too much."""

import asyncio

from bench.chaos.client import Ask, Client
from bench.chaos.deployment import WORDY_MODEL
from bench.chaos.rules import Hold, Passing
from bench.chaos.running import until
from bench.chaos.scenarios.messages import is_migration
from bench.chaos.scenarios.registry import PLAIN, RELAYED, scenario
from bench.chaos.trial import Trial

LONG_PROMPT = (1000, 1600)
MANY = 200
SLOW_TOKENS = 1200
PAUSE_S = 10.0
FREED_S = 1.0
MEMORY_LIMIT = 32 * 2**20  # bytes that a gateway may grow by for four clients that do not read


@scenario("cancel-queued", "clients leave while their requests are queued", PLAIN)
async def cancel_queued(trial: Trial) -> None:
    await trial.background()
    trial.fault()
    asks = trial.asks(24, prompt=LONG_PROMPT, tokens=16)
    ahead, leavers = trial.start(asks[:12]), trial.start(asks[12:])
    await asyncio.sleep(0.15)
    await _leave(trial, [one for one in leavers if not one.visit.pieces], "queued")
    trial.expect(any(not one.visit.pieces for one in ahead), "others were before them in the queue")


@scenario("cancel-prefill", "clients leave while their prompts are computed", PLAIN)
async def cancel_prefill(trial: Trial) -> None:
    await trial.background()
    trial.fault()
    for _ in range(4):
        [leaver] = trial.start(trial.asks(1, prompt=LONG_PROMPT, tokens=16))
        await until(lambda: _is_prefilling(trial) or leaver.visit.pieces, "its prompt is computed", 10.0)  # noqa: B023
        await _leave(trial, [leaver] if not leaver.visit.pieces else [], "in_prefill")
    trial.expect(trial.notes.get("in_prefill"), "at least one left in time")


def _is_prefilling(trial: Trial) -> bool:
    statuses = (trial.mesh.observer.engine(engine) for engine in trial.mesh.deployment.engines)
    return any(status is not None and status.prefill_remaining_s > 0 for status in statuses)


@scenario("cancel-transfer", "clients leave while their KV is on its way", RELAYED, in_short=True)
async def cancel_transfer(trial: Trial) -> None:
    await trial.background()
    trial.fault()
    for kind in ("Reserve", "Blocks", "Commit"):
        await _leave_at(trial, kind, trial.asks(1, prompt=LONG_PROMPT, tokens=64))


async def _leave_at(trial: Trial, kind: str, asks: list[Ask]) -> None:
    names: list[str] = []

    def is_of_leaver(message: Passing) -> bool:
        return message.kind == kind and any(message.transfer.startswith(f"{name}-") for name in names)

    hold = Hold(is_of_leaver)
    async with trial.rule(hold):
        [leaver] = trial.start(asks)
        names.append(leaver.visit.name)
        await until(lambda: hold.happened.is_set() or leaver.visit.is_over, f"its transfer comes to {kind}")
        if hold.happened.is_set():
            leave(trial, [leaver], "in_transfer")
        await asyncio.sleep(0.2)
        hold.release()
        await asyncio.sleep(0.1)


@scenario("cancel-decode", "clients leave in mid-stream", PLAIN)
async def cancel_decode(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(8))
    await trial.decoding(leavers)
    trial.fault()
    await _leave(trial, leavers, "in_decode")


@scenario("cancel-migration", "clients leave while their requests migrate", RELAYED)
async def cancel_migration(trial: Trial) -> None:
    for kind in ("Reserve", "Blocks", "Commit", "Committed"):
        streams = await trial.background(4)
        leaver = streams[0]
        name = leaver.visit.name
        trial.fault()
        hold = Hold(
            lambda message: (
                message.kind == kind and message.transfer.startswith(f"{name}-") and is_migration(message)  # noqa: B023
            )
        )
        async with trial.rule(hold):
            trial.migrate([leaver])
            await until(hold.happened.is_set, f"its migration comes to {kind}")
            leave(trial, [leaver], "in_migration")
            await asyncio.sleep(0.2)
            hold.release()
            await asyncio.sleep(0.1)
        await trial.all_over()


@scenario("cancel-200", f"{MANY} clients leave at once", PLAIN)
async def cancel_many(trial: Trial) -> None:
    await trial.background()
    leavers = trial.start(trial.asks(MANY, prompt=(16, 128), tokens=100))
    await asyncio.sleep(1.5)
    trial.fault()
    await _leave(trial, leavers, "at_once")


async def _leave(trial: Trial, leavers: list[Client], note: str) -> None:
    """They leave, and engines soon run only what is for those who stay."""
    leave(trial, leavers, note)
    num_probes = len(trial.mesh.deployment.ports)

    def is_freed() -> bool:
        statuses = [trial.mesh.observer.engine(engine) for engine in trial.mesh.deployment.engines]
        num_held = sum(status.num_running + status.num_waiting for status in statuses if status)
        staying = [one.visit for one in trial.clients if not (one.visit.is_over or one.visit.has_left)]
        return num_held <= num_probes + len(staying)

    await until(is_freed, "engines ran nothing for clients that have left", FREED_S)


def leave(trial: Trial, leavers: list[Client], note: str) -> None:
    for leaver in leavers:
        leaver.leave()
    trial.note(**{note: len(leavers)})


@scenario("slow-client", f"four clients do not read for {PAUSE_S:g} s; others go on, memory is bounded")
async def slow_client(trial: Trial) -> None:
    before = trial.mesh.memory()
    asks = trial.asks(4, tokens=SLOW_TOKENS)
    slow = trial.start(asks, model=WORDY_MODEL, is_slow=True)
    for one in slow:
        one.may_read.set()
    await trial.decoding(slow)
    trial.fault()
    for one in slow:
        one.may_read.clear()
    pause = asyncio.create_task(asyncio.sleep(PAUSE_S))
    await trial.background()
    await pause
    grown = {name: trial.mesh.memory().get(name, 0) - before.get(name, 0) for name in trial.mesh.deployment.gateways}
    trial.notes["grown_mb"] = round(max(grown.values()) / 2**20, 1)
    trial.expect(max(grown.values()) < MEMORY_LIMIT, f"memory is bounded, grown by {grown}")
    for one in slow:
        one.may_read.set()


@scenario("too-long", "prompts of twice the limit among normal ones: 400 for those")
async def too_long(trial: Trial) -> None:
    streams = await trial.background()
    trial.fault()
    wrong = [trial.ask_once(ask) for ask in trial.too_long(4)]
    answers = await asyncio.gather(*wrong)
    trial.expect(all(visit.status == 400 for visit in answers), f"400, not {[visit.status for visit in answers]}")
    trial.note(refused_with_400=sum(visit.status == 400 for visit in answers))
    trial.expect(any(not one.visit.is_over for one in streams), "others went on meanwhile")
