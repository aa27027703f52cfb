"""All attacks, one mesh after the other: each is used until an attack breaks it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.siege.attack import ONE_HOST, WALLS, Attack, Family
from bench.siege.besieging import Besieged, Pace, besieged
from bench.siege.verdict import Row
from bench.siege.walls import Served, standing, write

AT_ONCE = 4  # attacks of a mixture
FAMILIES = tuple(Family)


@dataclass(frozen=True, slots=True)
class Orders:
    """``rounds`` of mixtures follow the attacks one by one."""

    attacks: Sequence[Attack]
    seed: int
    rounds: int
    is_fast: bool


def ordered(attacks: Sequence[Attack]) -> list[Attack]:
    """By mesh, then by class."""
    return sorted(attacks, key=lambda one: (WALLS.index(one.wall), FAMILIES.index(one.family)))


def mixtures(orders: Orders) -> list[list[Attack]]:
    """Drawn by seed from all that may run beside others."""
    random = Random(f"{orders.seed} mixtures")
    mixed = [attack for attack in orders.attacks if attack.mixes and attack.wall == ONE_HOST]
    return [random.sample(mixed, min(AT_ONCE, len(mixed))) for _ in range(orders.rounds if len(mixed) > 1 else 0)]


def plan(orders: Orders) -> list[list[Attack]]:
    """What runs at a time, in order. Mixtures follow the single attacks on their mesh."""
    single = [[attack] for attack in ordered(orders.attacks)]
    return [
        *(one for one in single if one[0].wall == ONE_HOST),
        *mixtures(orders),
        *(one for one in single if one[0].wall != ONE_HOST),
    ]


class Campaign:
    """Use as a context manager. ``folder`` takes models, topologies and logs."""

    def __init__(self, folder: Path, served: Served, orders: Orders) -> None:
        self._folder = folder
        self._served = served
        self._orders = orders
        self._pace = Pace.of(is_fast=orders.is_fast)
        self._stack = AsyncExitStack()
        self._wall: str | None = None
        self._besieged: Besieged | None = None
        self._num_started = 0

    async def __aenter__(self) -> "Campaign":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def rows(self) -> AsyncIterator[tuple[list[Attack], Row]]:
        """Raise `UserError` if no mesh can be started."""
        for attacks in plan(self._orders):
            random = Random(f"{self._orders.seed} {' '.join(attack.name for attack in attacks)}")
            target = await self._target(attacks[0].wall, random)
            row = await target.run(attacks, random)
            yield attacks, row
            if not row.is_whole:
                await self._stop()

    async def _target(self, wall: str, random: Random) -> Besieged:
        if self._besieged is None or self._wall != wall:
            await self._stop()
            self._num_started += 1
            folder = self._folder / f"mesh-{self._num_started}"
            folder.mkdir()
            mesh = await self._stack.enter_async_context(
                standing(write(wall, folder, self._served), self._served.cache)
            )
            self._besieged = await self._stack.enter_async_context(besieged(mesh, self._served, self._pace, random))
            self._wall = wall
        return self._besieged

    async def _stop(self) -> None:
        self._besieged = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()
