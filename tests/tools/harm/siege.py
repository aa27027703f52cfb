"""Attacks of a catalogue, beside an honest client that must not notice them.

A mesh is started, its memory limited. A witness asks it all the time, also for a greedy stream whose text is
known, while attacks of the catalogue run one by one and then in random mixtures. The bar: the witness has no failure,
and no gap a second longer than load explains. No process is started anew, grows by 256 MiB during an attack, or by 32
MiB after it. Each attacker is answered with 4xx, cut off, or served like anyone.
"""

import argparse
import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.tools.harm.attacks import files, rows, wire
from tests.tools.harm.attacks.ground import Answer, Fields, Ground, ImpossibleHereError
from tests.tools.harm.harm import PLAIN, End, Harm, choose
from tests.tools.harm.meshes import HONEST, RIVAL, SEEING_MODEL, deploy, key_headers, kinds
from tests.tools.harm.observer import SUPERVISOR
from tests.tools.harm.running import RunningMesh, WaitedInVainError, running, until
from tests.tools.harm.testimony import Accounts, Window
from tests.tools.harm.verdict import AFTER_BYTES, GAP_S, KILL_GAP_S, Row
from tests.tools.harm.watch import Watch
from tests.tools.harm.witness import calm_gap_s, has_round, witnessing

MESHES = kinds("siege")
HARMS = sorted((*rows.ATTACKS, *files.ATTACKS, *wire.ATTACKS), key=lambda one: MESHES.index(one.mesh))
AT_ONCE = 4  # attacks of a mixture
ROUNDS = 12
MIXTURE = "mixture"
ALIVE_S = 60.0
DISK = "64m"
WARM_CHARS = 512


class Pace(NamedTuple):
    """Seconds: of calm before anything, of an equal load, of patience, of clinging, for memory to come back, and for
    an attack to end."""

    calm_s: float = 10.0
    load_s: float = 5.0
    patience_s: float = 30.0
    hold_s: float = 25.0
    settle_s: float = 10.0
    longest_s: float = 120.0


SHORT_PACE = Pace(0.5, 0.5, 10.0, 1.5, 6.0, 60.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help=f"random mixtures (default: {ROUNDS}; short: 1)")


def plan(options: argparse.Namespace) -> list[list[Harm]]:
    """What runs at a time, in order. Mixtures follow the single attacks on their mesh.

    Raise `UserError` if there is nothing of a name.
    """
    chosen = choose(HARMS, options.only, is_short=options.short)
    rounds = options.rounds
    if rounds is None:
        rounds = 0 if options.only else 1 if options.short else ROUNDS
    near, far = ([[one] for one in chosen if (one.mesh == PLAIN) is is_near] for is_near in (True, False))
    return [*near, *mixtures(chosen, options.seed, rounds), *far]


def mixtures(attacks: Sequence[Harm], seed: int, rounds: int) -> list[list[Harm]]:
    """Drawn from all that may run beside others."""
    random = Random(f"{seed} mixtures")
    mixed = [attack for attack in attacks if attack.mixes and attack.mesh == PLAIN]
    return [random.sample(mixed, min(AT_ONCE, len(mixed))) for _ in range(rounds if len(mixed) > 1 else 0)]


class Besieged:
    """A mesh, its witness, and what load alone does to both."""

    def __init__(self, mesh: RunningMesh, testimony: Accounts, pace: Pace) -> None:
        self._mesh = mesh
        self._testimony = testimony
        self._pace = pace
        self._gaps: dict[int, float] = {}  # the worst by load

    def _ground(self, random: Random) -> Ground:
        return Ground(self._mesh, random, self._pace.patience_s, self._pace.hold_s)

    async def prepare(self, random: Random) -> None:
        """See how long the witness waits while nothing happens."""
        await self._warm(random)
        self._gaps[0] = await calm_gap_s(self._testimony, self._pace.calm_s)

    async def _warm(self, random: Random) -> None:
        """Touch what processes allocate once."""
        ground = self._ground(random)
        wide: Fields = {"n": 64, "logprobs": 20, "max_tokens": 16}
        texts = ("".join(random.choices("abcdefgh ", k=WARM_CHARS)) for _ in range(8))
        variants = [*({"prompt": text, "max_tokens": 8} for text in texts), wide]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.longest_s):
                key = ground.key(HONEST)
                await ground.send_all([ground.completion(fields, key) for fields in variants], at_once=4)
                if any(one.name == SEEING_MODEL for one in self._mesh.deployment.topology.services):
                    await ground.send(ground.post("/v1/chat/completions", rows.shown_picture(SEEING_MODEL), key))
        await has_round(self._testimony, time.monotonic())

    async def _calm_gap_s(self, load: int, random: Random) -> float:
        """The witness's worst gap beside that many ordinary requests."""
        if load not in self._gaps:
            loading = [asyncio.create_task(self._ordinary(random)) for _ in range(load)]
            try:
                measured_s = await calm_gap_s(self._testimony, self._pace.load_s)
            finally:
                for task in loading:
                    task.cancel()
                await asyncio.gather(*loading, return_exceptions=True)
            self._gaps[load] = max(measured_s, self._gaps[0])
            await has_round(self._testimony, time.monotonic())
        return self._gaps[load]

    async def _ordinary(self, random: Random) -> None:
        """Requests one after the other."""
        ground = self._ground(random)
        while True:
            answer = await ground.send(ground.completion({"max_tokens": 32, "ignore_eos": True}, ground.key(RIVAL)))
            await asyncio.sleep(0.0 if answer.end is End.SERVED else 0.1)

    async def run(self, harms: Sequence[Harm], random: Random) -> Row:
        """One attack, or several at a time."""
        gap_s = await self._calm_gap_s(sum(attack.load for attack in harms), random)
        kills = {process for attack in harms for process in attack.kills}
        before, began = self._pids(), time.monotonic()
        self._testimony.forget(began - 2 * ALIVE_S)
        with Watch({name: pid for name, pid in before.items() if name not in kills}, alone={SUPERVISOR}) as watch:
            answers, impossible = await self._storm(harms, random)
            ended = time.monotonic()
            is_answered = await has_round(self._testimony, ended)
            with suppress(WaitedInVainError):
                await until(lambda: max(watch.kept().values(), default=0) < AFTER_BYTES, "", self._pace.settle_s)
            kept = watch.kept()
        with suppress(WaitedInVainError):
            await until(lambda: self._pids().keys() >= before.keys(), "all processes are alive", ALIVE_S)
        after = self._pids()
        if kills:
            await self._warm(random)
        is_alone = len(harms) == 1
        return Row(
            name=" + ".join(attack.name for attack in harms),
            title=harms[0].title if is_alone else "",
            family=harms[0].family if is_alone else MIXTURE,
            took_s=time.monotonic() - began,
            honest=self._testimony.summary(Window(began, ended if is_answered else time.monotonic())),
            calm_gap_s=gap_s,
            limit_s=KILL_GAP_S if kills else GAP_S,
            broken=[] if is_answered else ["the witness is not served any more"],
            ends=dict(Counter(str(answer) for found in answers for answer in found)),
            wrong=[one for attack, found in zip(harms, answers, strict=True) for one in wrong_of(attack, found)],
            grown=watch.growth(),
            kept=kept,
            restarted=restarted(before, after, kills),
            impossible=impossible,
        )

    async def _storm(self, attacks: Sequence[Harm], random: Random) -> tuple[list[Sequence[Answer]], str | None]:
        """What each attacker was answered, and why one was not possible."""
        ground = self._ground(random)
        try:
            return await asyncio.gather(*(self._strike(attack, ground) for attack in attacks)), None
        except ImpossibleHereError as error:
            return [()] * len(attacks), str(error)

    async def _strike(self, attack: Harm, ground: Ground) -> Sequence[Answer]:
        try:
            async with asyncio.timeout(self._pace.longest_s):
                return await attack.run(ground)  # type: ignore[no-any-return]
        except TimeoutError:
            return [Answer(End.HELD, said=f"{attack.name} did not end within {self._pace.longest_s:g} s")]
        except WaitedInVainError as error:
            return [Answer(End.FAILED, said=str(error))]

    def _pids(self) -> dict[str, int]:
        supervisor = self._mesh.observer.pid(SUPERVISOR)
        return {**self._mesh.observer.pids(), **({} if supervisor is None else {SUPERVISOR: supervisor})}


def wrong_of(attack: Harm, answers: Iterable[Answer]) -> list[str]:
    return [f"{answer} {answer.said}".strip() for answer in answers if answer.end not in attack.right]


def restarted(before: Mapping[str, int], after: Mapping[str, int], kills: Collection[str]) -> list[str]:
    """Process ids by name, before and after."""
    return [name for name, pid in before.items() if after.get(name) != pid and name not in kills]


@asynccontextmanager
async def standing(kind: str, folder: Path, options: argparse.Namespace) -> AsyncIterator[Besieged]:
    """A mesh of that kind with its witness, until the end of the block, on a small disk of its own if that is allowed.

    Raise `UserError` if it does not start.
    """
    deployment = deploy(folder, "siege", kind)
    async with AsyncExitStack() as stack:
        deployment.runtime.mkdir(mode=0o700)
        disk = ("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "none", str(deployment.runtime))
        if os.getuid() == 0 and await _do(*disk):
            stack.push_async_callback(_do, "umount", "-l", str(deployment.runtime))
        mesh = await stack.enter_async_context(running(deployment, folder / "cache"))
        headers = key_headers(deployment, HONEST)
        testimony = await stack.enter_async_context(witnessing(deployment.ports[0], headers))
        besieged = Besieged(mesh, testimony, SHORT_PACE if options.short else Pace())
        await besieged.prepare(Random(kind))
        yield besieged


async def _do(*command: str) -> bool:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    return done.returncode == 0
