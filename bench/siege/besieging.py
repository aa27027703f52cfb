"""One mesh under siege, and what each attack does to it."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.chaos.observer import SUPERVISOR
from bench.chaos.running import RunningMesh, WaitedInVainError, until
from bench.siege.answers import Answer, End
from bench.siege.attack import Attack
from bench.siege.attacks.files import ImpossibleHereError
from bench.siege.ground import HONEST, RIVAL, Ground, key_path
from bench.siege.stand import Stand, witnessing
from bench.siege.testimony import Window
from bench.siege.verdict import AFTER_BYTES, GAP_S, KILL_GAP_S, Row, ends_of, restarted, wrong_of
from bench.siege.walls import Served
from bench.siege.watch import Watch

MIXTURE = "mixture"
ALIVE_S = 60.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: of calm before anything, of an equal load, of patience, of clinging, for memory to come back, and for
    an attack to end."""

    calm_s: float
    load_s: float
    patience_s: float
    hold_s: float
    settle_s: float
    longest_s: float

    @classmethod
    def of(cls, *, is_fast: bool) -> "Pace":
        return cls(1.5, 1.5, 10.0, 1.5, 6.0, 60.0) if is_fast else cls(10.0, 5.0, 30.0, 25.0, 10.0, 120.0)


class Besieged:
    """A mesh, its witness, and what load alone does to both."""

    def __init__(self, mesh: RunningMesh, stand: Stand, served: Served, pace: Pace) -> None:
        self._mesh = mesh
        self._stand = stand
        self._served = served
        self._pace = pace
        self._gaps: dict[int, float] = {}  # the worst by load

    def ground(self, random: Random) -> Ground:
        served, pace = self._served, self._pace
        return Ground(self._mesh, served.name, served.max_context, random, pace.patience_s, pace.hold_s)

    async def prepare(self, random: Random) -> None:
        """See how long the witness waits while nothing happens."""
        await self._warm(random)
        self._gaps[0] = (await self._stand.calm(self._pace.calm_s)).seconds

    async def _warm(self, random: Random) -> None:
        """Touch what processes allocate once."""
        ground = self.ground(random)
        long = [{"prompt": _words(random, self._served.max_context // 4), "max_tokens": 8} for _ in range(8)]
        wide: list[dict[str, object]] = [{"n": 64, "logprobs": 20, "max_tokens": 16}]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.longest_s):
                await ground.all_of([*long, *wide], ground.key(HONEST))
        await self._stand.round(time.monotonic())

    async def calm_gap_s(self, load: int, random: Random) -> float:
        """The witness's worst gap beside that many ordinary requests."""
        if load not in self._gaps:
            loading = asyncio.create_task(self._ordinary(load, random))
            try:
                measured = await self._stand.calm(self._pace.load_s)
            finally:
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)
            self._gaps[load] = max(measured.seconds, self._gaps[0])
            await self._stand.round(time.monotonic())
        return self._gaps[load]

    async def _ordinary(self, load: int, random: Random) -> None:
        """As many requests at a time as are to weigh as much as an attack."""
        ground = self.ground(random)
        key = ground.key(RIVAL)

        async def ask() -> None:
            while True:
                answer = await ground.complete({"max_tokens": 32, "ignore_eos": True}, key)
                await asyncio.sleep(0.0 if answer.end is End.SERVED else 0.1)

        await asyncio.gather(*(ask() for _ in range(load)))

    async def run(self, attacks: Sequence[Attack], random: Random) -> Row:
        """One attack, or several at a time."""
        load = sum(attack.load for attack in attacks)
        calm_gap_s = await self.calm_gap_s(load, random)
        kills = frozenset[str]().union(*(attack.kills for attack in attacks))
        before = self._pids()
        began = time.monotonic()
        self._stand.forget(began - 2 * ALIVE_S)
        watched = {name: pid for name, pid in before.items() if name not in kills}
        with Watch(watched, alone={SUPERVISOR}) as watch:
            answers, impossible = await self._storm(attacks, random)
            ended = time.monotonic()
            answered = await self._stand.round(ended)
            kept = await self._settled(watch)
        after = await self._alive(before)
        if kills:
            await self._warm(random)
        window = Window(began, time.monotonic() if not answered else ended)
        gap = self._stand.worst_gap(window)
        late = [] if answered else ["the witness is not served any more"]
        return Row(
            name=" + ".join(attack.name for attack in attacks),
            family=attacks[0].family if len(attacks) == 1 else MIXTURE,
            source=attacks[0].source if len(attacks) == 1 else "",
            ends=ends_of([answer for found in answers for answer in found]),
            wrong=[
                one for attack, found in zip(attacks, answers, strict=True) for one in wrong_of(found, attack.right)
            ],
            failures=self._stand.failures(window) + late,
            gap_s=gap.seconds,
            gap_of=gap.kind,
            calm_gap_s=calm_gap_s,
            limit_s=KILL_GAP_S if kills else GAP_S,
            grown=watch.growth(),
            kept=kept,
            restarted=restarted(before, after, kills),
            took_s=time.monotonic() - began,
            impossible=impossible,
        )

    async def _storm(self, attacks: Sequence[Attack], random: Random) -> tuple[list[Sequence[Answer]], str | None]:
        """What each attacker was answered, and why one was not possible."""
        ground = self.ground(random)
        try:
            return list(await asyncio.gather(*(self._strike(attack, ground) for attack in attacks))), None
        except ImpossibleHereError as error:
            return [()] * len(attacks), str(error)

    async def _strike(self, attack: Attack, ground: Ground) -> Sequence[Answer]:
        try:
            async with asyncio.timeout(self._pace.longest_s):
                return await attack.run(ground)
        except TimeoutError:
            return [Answer(End.HELD, said=f"{attack.name} did not end within {self._pace.longest_s:g} s")]
        except WaitedInVainError as error:
            return [Answer(End.FAILED, said=str(error))]

    async def _settled(self, watch: Watch) -> dict[str, int]:
        """What is kept, once there is little of it or time is over."""
        with suppress(WaitedInVainError):
            await until(
                lambda: max(watch.kept().values(), default=0) < AFTER_BYTES, "memory is back", self._pace.settle_s
            )
        return watch.kept()

    async def _alive(self, before: dict[str, int]) -> dict[str, int]:
        """All processes again, or those that are there at the deadline."""
        with suppress(WaitedInVainError):
            await until(lambda: self._pids().keys() >= before.keys(), "all processes are alive", ALIVE_S)
        return self._pids()

    def _pids(self) -> dict[str, int]:
        found = self._mesh.observer.pids()
        supervisor = self._mesh.observer.pid(SUPERVISOR)
        return found if supervisor is None else {**found, SUPERVISOR: supervisor}


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _words(random: Random, count: int) -> str:
    return "".join(random.choice("abcdefgh ") for _ in range(count))


@asynccontextmanager
async def besieged(mesh: RunningMesh, served: Served, pace: Pace, random: Random) -> AsyncIterator[Besieged]:
    """With its witness, until the end of the block."""
    port, honest = mesh.deployment.ports[0], key_path(mesh.deployment.path.parent, HONEST)
    key = await asyncio.to_thread(_read, honest)
    async with witnessing(port, served.name, served.known_tokens, key) as stand:
        made = Besieged(mesh, stand, served, pace)
        await made.prepare(random)
        yield made
