"""Messages are lost, changed or held up on their way, and processes die at the moment that one passes."""

import asyncio

from bench.chaos.rules import TRANSFER, Corruption, EveryNth, Partition, Passing, RandomLoss, Watch
from bench.chaos.running import until
from bench.chaos.scenarios.registry import RELAYED, scenario
from bench.chaos.trial import Trial

LONG_PROMPT = (1000, 1600)
NUM_LONG = 4  # of them at once: decodes pause for prompts that the policy computes in their slack, fault or none
PARTITION_S = 3.0  # three leases
STAGES = ("Reserved", "Blocks", "Commit", "Committed")  # of a migration, in order
FROM_SOURCE = ("Blocks", "Commit")


def is_migration(message: Passing) -> bool:
    """Transfers of migrations have one number more: request.attempt.hop.number."""
    return message.transfer.count(".") == 3


@scenario("kill-in-transfer", "SIGKILL of the prefill engine in mid-transfer", RELAYED, in_short=True)
async def kill_in_transfer(trial: Trial) -> None:
    await trial.background()

    def kill(_: Passing) -> None:
        trial.fault()
        trial.mesh.kill("prefill")

    watch = Watch(lambda message: message.kind == "Blocks" and message.body.get("seq") == 1, kill)
    async with trial.rule(watch):
        trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=48))
        await until(watch.happened.is_set, "KV blocks are on their way")


@scenario("kill-reserved", "SIGKILL of a decode engine between reservation and arrival", RELAYED)
async def kill_reserved(trial: Trial) -> None:
    await trial.background()

    def kill(message: Passing) -> None:
        trial.fault()
        trial.mesh.kill(message.source)

    watch = Watch(lambda message: message.kind == "Reserved", kill)
    async with trial.rule(watch):
        trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=48))
        await until(watch.happened.is_set, "blocks are reserved")


@scenario("lose-nth", "every 5th message of transfers is lost", RELAYED, in_short=True)
async def lose_nth(trial: Trial) -> None:
    trial.fault()
    async with trial.rule(EveryNth(5, TRANSFER)):
        await _load_with_moves(trial)


@scenario("lose-5-percent", "5 % of all messages of transfers are lost", RELAYED)
async def lose_some(trial: Trial) -> None:
    trial.fault()
    async with trial.rule(RandomLoss(0.05, trial.random, TRANSFER)):
        await _load_with_moves(trial)


@scenario("lose-any", "1 % of all messages are lost: submissions, answers, tokens, transfers", RELAYED)
async def lose_any(trial: Trial) -> None:
    trial.fault()
    async with trial.rule(RandomLoss(0.01, trial.random)):
        await _load_with_moves(trial)


@scenario("corrupt", "a byte of every 2nd message with KV blocks is changed", RELAYED, in_short=True)
async def corrupt(trial: Trial) -> None:
    trial.fault()
    async with trial.rule(Corruption(2, trial.random)):
        await _load_with_moves(trial)


async def _load_with_moves(trial: Trial) -> None:
    """Hand-overs all the time, and some migrations."""
    streams = await trial.background(at_least=1)
    for _ in range(2 if trial.effort.is_quick else 4):
        trial.start(trial.asks(4, prompt=LONG_PROMPT, tokens=24))
        trial.migrate(streams[:3])
        await asyncio.sleep(0.8)
    await trial.all_over()


@scenario("cut-gateway", f"partition between the gateway and a decode engine for {PARTITION_S:g} s", RELAYED)
async def cut_gateway(trial: Trial) -> None:
    await trial.background()
    victim = trial.busiest(trial.decoders())
    await _cut(trial, trial.mesh.deployment.gateways[0], victim)


@scenario("cut-engines", f"partition between the prefill and a decode engine for {PARTITION_S:g} s", RELAYED)
async def cut_engines(trial: Trial) -> None:
    await trial.background()
    trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=48))
    await _cut(trial, "prefill", trial.busiest(trial.decoders()))


async def _cut(trial: Trial, one: str, other: str) -> None:
    partition = Partition([one], [other])
    trial.fault()
    async with trial.rule(partition):
        await asyncio.sleep(0.1)
        trial.start(trial.asks(trial.effort.streams, tokens=48))
        await asyncio.sleep(PARTITION_S)
        partition.heal()
        await asyncio.sleep(0.2)


@scenario("migrate-kill-source", "requests migrate, and where they come from is killed", RELAYED)
async def migrate_kill_source(trial: Trial) -> None:
    await _kill_migrating(trial, kills_source=True)


@scenario("migrate-kill-target", "requests migrate, and where they go to is killed", RELAYED)
async def migrate_kill_target(trial: Trial) -> None:
    await _kill_migrating(trial, kills_source=False)


async def _kill_migrating(trial: Trial, *, kills_source: bool) -> None:
    """Once for each stage of a migration."""
    for stage in STAGES[1:2] if trial.effort.is_quick else STAGES:
        streams = await trial.background()

        def kill(message: Passing) -> None:
            sends_from_source = message.kind in FROM_SOURCE
            trial.fault()
            trial.mesh.kill(message.source if sends_from_source == kills_source else message.target)

        watch = Watch(lambda message: message.kind == stage and is_migration(message), kill)  # noqa: B023
        async with trial.rule(watch):
            trial.migrate(streams[: len(streams) // 2])
            await until(watch.happened.is_set, f"a migration comes to {stage}")
        await trial.all_over()
        await trial.mesh.rest()
