"""Messages are lost, changed or held up on their way, and processes die at the moment that one passes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from tests.tools.harm.faults.trial import LONG_PROMPT, Run, Trial
from tests.tools.harm.harm import Harm
from tests.tools.harm.meshes import RELAYED
from tests.tools.harm.relay import (
    Passing,
    Rule,
    Which,
    between,
    corrupt,
    every,
    hold,
    is_migration,
    is_transfer,
    lose,
    some,
    watch,
)
from tests.tools.harm.running import until

NUM_LONG = 4  # of them at once: decodes pause for prompts that the policy computes in their slack, fault or none
ROUNDS, ROUND_S = 8, 4.0  # of prompts, until the policy hands one over
PARTITION_S = 3.0  # three leases
ORDER_EVERY_S = 0.5
STAGES = ("Reserved", "Blocks", "Commit", "Committed")  # of a migration, in order
FROM_SOURCE = ("Blocks", "Commit")


def under(make: Callable[[Trial], Rule]) -> Run:
    """Hand-overs all the time, and some migrations, while a rule is in force."""

    async def run(trial: Trial) -> None:
        async with trial.rule(make(trial)):
            streams = await trial.background(at_least=1)
            for _ in range(2 if trial.is_short else 4):
                trial.start(trial.asks(4, tokens=24, prompt=LONG_PROMPT))
                trial.migrate(streams[:3])
                await asyncio.sleep(0.8)
            await trial.all_over()

    return run


def _is_second_part(message: Passing) -> bool:
    return message.kind == "Blocks" and message.body.get("seq") == 1


async def kill_in_transfer(trial: Trial) -> None:
    """Prompts come until one is handed over in parts: on a busy machine the policy computes them where they decode."""
    await trial.background()
    async with _killing(trial, _is_second_part, lambda _: "prefill") as watched:
        for _ in range(ROUNDS):
            trial.start(trial.asks(NUM_LONG, tokens=48, prompt=LONG_PROMPT))
            with suppress(TimeoutError):
                await asyncio.wait_for(watched.happened.wait(), ROUND_S)
                break


def kill_migrating(*, kills_source: bool) -> Run:
    """Once for each stage of a migration."""

    def whom(message: Passing) -> str:
        return message.source if (message.kind in FROM_SOURCE) == kills_source else message.target

    async def run(trial: Trial) -> None:
        for stage in STAGES[1:2] if trial.is_short else STAGES:
            streams = await trial.background()
            which: Which = partial(_is_at, stage)
            async with _killing(trial, which, whom) as watched:
                while not watched.happened.is_set() and not all(one.is_over for one in streams):
                    trial.migrate(streams[: len(streams) // 2])  # again: an engine that was away may decline
                    await asyncio.sleep(ORDER_EVERY_S)
            await trial.all_over()
            await trial.mesh.rest()

    return run


def _is_at(stage: str, message: Passing) -> bool:
    return message.kind == stage and is_migration(message)


@asynccontextmanager
async def _killing(trial: Trial, which: Which, whom: Callable[[Passing], str]) -> AsyncIterator[Rule]:
    """What is done in the block lets such a message pass, which kills."""

    watched = watch(which, lambda message: trial.mesh.kill(whom(message)))
    async with trial.rule(watched):
        yield watched
        await until(watched.happened.is_set, "the message passes")


async def cut_gateway(trial: Trial) -> None:
    await trial.background()
    await _cut(trial, trial.mesh.deployment.gateways[0])


async def cut_engines(trial: Trial) -> None:
    await trial.background()
    trial.start(trial.asks(NUM_LONG, tokens=48, prompt=LONG_PROMPT))
    await _cut(trial, "prefill")


async def _cut(trial: Trial, one: str) -> None:
    """Off from the busiest decode engine."""
    healed = asyncio.Event()
    async with trial.rule(hold(between([one], [trial.busiest()]), healed)):
        await asyncio.sleep(0.1)
        trial.start(trial.asks(trial.num_streams, tokens=48))
        await asyncio.sleep(PARTITION_S)
        healed.set()
        await asyncio.sleep(0.2)


def _lose(probability: float, which: Which) -> Run:
    return under(lambda trial: lose(some(probability, trial.random, which)))


lose_any = _lose(0.01, lambda message: not message.is_status)
corrupt_kv = under(lambda trial: corrupt(every(2, lambda message: message.payload), trial.random))
kill_source, kill_target = (kill_migrating(kills_source=which) for which in (True, False))
_m = partial(Harm, "messages", mesh=RELAYED)
FAULTS = (
    _m("kill-in-transfer", kill_in_transfer, "SIGKILL of the prefill engine in mid-transfer", in_short=True),
    _m("lose-5-percent", _lose(0.05, is_transfer), "5 % of all messages of transfers are lost", in_short=True),
    _m("lose-any", lose_any, "1 % of all messages are lost: submissions, answers, tokens, transfers"),
    _m("corrupt", corrupt_kv, "a byte of every 2nd message with KV blocks is changed", in_short=True),
    _m("cut-gateway", cut_gateway, f"partition between the gateway and a decode engine for {PARTITION_S:g} s"),
    _m("cut-engines", cut_engines, f"partition between the prefill and a decode engine for {PARTITION_S:g} s"),
    _m("migrate-kill-source", kill_source, "requests migrate, and where they come from is killed"),
    _m("migrate-kill-target", kill_target, "requests migrate, and where they go to is killed"),
)
