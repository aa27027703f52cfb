"""One mesh under siege, its witness, and what each attack does to both."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.harm.observer import SUPERVISOR
from bench.harm.running import RunningMesh, WaitedInVainError, until
from bench.harm.siege.attack import Attack, ImpossibleHereError
from bench.harm.siege.ground import HONEST, MAX_CONTEXT, RIVAL, Answer, End, Fields, Ground, key_headers
from bench.harm.siege.testimony import Accounts, Window, witnessing
from bench.harm.siege.verdict import AFTER_BYTES, GAP_S, KILL_GAP_S, AttackRow, ends_of, restarted, wrong_of
from bench.harm.siege.walls import deploy, standing
from bench.harm.siege.watch import Watch

MIXTURE = "mixture"
ALIVE_S = 60.0


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
        self._gaps[0] = (await self._testimony.calm(self._pace.calm_s)).seconds

    async def _warm(self, random: Random) -> None:
        """Touch what processes allocate once."""
        ground = self._ground(random)
        wide: Fields = {"n": 64, "logprobs": 20, "max_tokens": 16}
        texts = ("".join(random.choices("abcdefgh ", k=MAX_CONTEXT // 4)) for _ in range(8))
        variants = [*({"prompt": text, "max_tokens": 8} for text in texts), wide]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.longest_s):
                key = ground.key(HONEST)
                await ground.send_all([ground.completion(fields, key) for fields in variants], at_once=4)
        await self._testimony.round(time.monotonic())

    async def _calm_gap_s(self, load: int, random: Random) -> float:
        """The witness's worst gap beside that many ordinary requests."""
        if load not in self._gaps:
            loading = [asyncio.create_task(self._ordinary(random)) for _ in range(load)]
            try:
                measured = await self._testimony.calm(self._pace.load_s)
            finally:
                for task in loading:
                    task.cancel()
                await asyncio.gather(*loading, return_exceptions=True)
            self._gaps[load] = max(measured.seconds, self._gaps[0])
            await self._testimony.round(time.monotonic())
        return self._gaps[load]

    async def _ordinary(self, random: Random) -> None:
        """Requests one after the other."""
        ground = self._ground(random)
        while True:
            answer = await ground.send(ground.completion({"max_tokens": 32, "ignore_eos": True}, ground.key(RIVAL)))
            await asyncio.sleep(0.0 if answer.end is End.SERVED else 0.1)

    async def run(self, attacks: Sequence[Attack], random: Random) -> AttackRow:
        """One attack, or several at a time."""
        calm_gap_s = await self._calm_gap_s(sum(attack.load for attack in attacks), random)
        kills = {process for attack in attacks for process in attack.kills}
        before, began = self._pids(), time.monotonic()
        self._testimony.forget(began - 2 * ALIVE_S)
        watched = {name: pid for name, pid in before.items() if name not in kills}
        with Watch(watched, alone={SUPERVISOR}) as watch:
            answers, impossible = await self._storm(attacks, random)
            ended = time.monotonic()
            is_answered = await self._testimony.round(ended)
            with suppress(WaitedInVainError):
                await until(lambda: _most(watch) < AFTER_BYTES, "memory is back", self._pace.settle_s)
            kept = watch.kept()
        with suppress(WaitedInVainError):
            await until(lambda: self._pids().keys() >= before.keys(), "all processes are alive", ALIVE_S)
        after = self._pids()
        if kills:
            await self._warm(random)
        window = Window(began, ended if is_answered else time.monotonic())
        gap = self._testimony.worst_gap(window)
        late = [] if is_answered else ["the witness is not served any more"]
        is_alone = len(attacks) == 1
        return AttackRow(
            name=" + ".join(attack.name for attack in attacks),
            title=attacks[0].title if is_alone else "",
            family=attacks[0].family if is_alone else MIXTURE,
            took_s=time.monotonic() - began,
            ends=ends_of([answer for found in answers for answer in found]),
            wrong=[one for attack, found in zip(attacks, answers, strict=True) for one in wrong_of(attack, found)],
            failures=self._testimony.failures(window) + late,
            gap_s=gap.seconds,
            gap_of=gap.kind,
            calm_gap_s=calm_gap_s,
            limit_s=KILL_GAP_S if kills else GAP_S,
            grown=watch.growth(),
            kept=kept,
            restarted=restarted(before, after, kills),
            impossible=impossible,
        )

    async def _storm(self, attacks: Sequence[Attack], random: Random) -> tuple[list[Sequence[Answer]], str | None]:
        """What each attacker was answered, and why one was not possible."""
        ground = self._ground(random)
        try:
            return await asyncio.gather(*(self._strike(attack, ground) for attack in attacks)), None
        except ImpossibleHereError as error:
            return [()] * len(attacks), str(error)

    async def _strike(self, attack: Attack, ground: Ground) -> Sequence[Answer]:
        try:
            async with asyncio.timeout(self._pace.longest_s):
                answers: Sequence[Answer] = await attack.run(ground)
                return answers
        except TimeoutError:
            return [Answer(End.HELD, said=f"{attack.name} did not end within {self._pace.longest_s:g} s")]
        except WaitedInVainError as error:
            return [Answer(End.FAILED, said=str(error))]

    def _pids(self) -> dict[str, int]:
        found = self._mesh.observer.pids()
        supervisor = self._mesh.observer.pid(SUPERVISOR)
        return found if supervisor is None else {**found, SUPERVISOR: supervisor}


def _most(watch: Watch) -> int:
    return max(watch.kept().values(), default=0)


@asynccontextmanager
async def besieged(kind: str, folder: Path, pace: Pace) -> AsyncIterator[Besieged]:
    """A mesh of that kind with its witness, until the end of the block. Raise `UserError` if it does not start."""
    deployment = deploy(kind, folder)
    async with standing(deployment) as mesh:
        headers = key_headers(deployment, HONEST)
        async with witnessing(deployment.ports[0], headers) as testimony:
            made = Besieged(mesh, testimony, pace)
            await made.prepare(Random(kind))
            yield made
