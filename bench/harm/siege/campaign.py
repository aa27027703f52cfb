"""Attacks of a catalogue, beside an honest client that must not notice them.

A mesh is started, its memory limited. A witness asks it all the time, also for a greedy stream whose text is
known, while attacks of the catalogue run one by one and then in random mixtures. The bar: no failure of the witness,
no gap of its a second longer than load explains, no process started anew, no process grown by 256 MiB during an attack
or by 32 MiB after it, and each attacker answered with 4xx, cut off, or served like anyone.
"""

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

from bench.harm.harm import PLAIN, choose
from bench.harm.running import Stage
from bench.harm.siege.attack import MESHES, Attack
from bench.harm.siege.attacks import access, files, forms, http, load, numbers, prompts, wire
from bench.harm.siege.besieging import SHORT_PACE, Besieged, Pace, besieged
from bench.harm.siege.verdict import AttackRow

CATALOGUE = (forms, numbers, prompts, http, load, files, wire, access)
HARMS = sorted((one for module in CATALOGUE for one in module.ATTACKS), key=lambda attack: MESHES.index(attack.mesh))
AT_ONCE = 4  # attacks of a mixture
ROUNDS = 12


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help=f"random mixtures (default: {ROUNDS}; short: 1)")


def plan(options: argparse.Namespace) -> list[list[Attack]]:
    """What runs at a time, in order. Mixtures follow the single attacks on their mesh.

    Raise `UserError` if there is nothing of a name.
    """
    chosen = choose(HARMS, options.only, is_short=options.short)
    rounds = options.rounds
    if rounds is None:
        rounds = 0 if options.only else 1 if options.short else ROUNDS
    near, far = ([[one] for one in chosen if (one.mesh == PLAIN) is is_near] for is_near in (True, False))
    return [*near, *mixtures(chosen, options.seed, rounds), *far]


def mixtures(attacks: Sequence[Attack], seed: int, rounds: int) -> list[list[Attack]]:
    """Drawn from all that may run beside others."""
    random = Random(f"{seed} mixtures")
    mixed = [attack for attack in attacks if attack.mixes and attack.mesh == PLAIN]
    return [random.sample(mixed, min(AT_ONCE, len(mixed))) for _ in range(rounds if len(mixed) > 1 else 0)]


async def rows(plan: Sequence[Sequence[Attack]], options: argparse.Namespace, folder: Path) -> AsyncIterator[AttackRow]:
    """Raise `UserError` if no mesh can be started."""
    pace = SHORT_PACE if options.short else Pace()

    def start(mesh: str, its_folder: Path) -> AbstractAsyncContextManager[Besieged]:
        return besieged(mesh, its_folder, pace)

    stage = Stage(folder, start)
    try:
        for attacks in plan:
            random = Random(f"{options.seed} {' '.join(attack.name for attack in attacks)}")
            row = await (await stage.mesh(attacks[0].mesh)).run(attacks, random)
            yield row
            if not row.is_whole:
                await stage.clear()
    finally:
        await stage.clear()
