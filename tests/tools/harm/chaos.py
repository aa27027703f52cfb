"""Faults one after the other, each beside a load whose answers are known.

A mesh of one prefill engine, two decode engines and two gateways is started with `mesh up`; a second, healthy one says
what answers should be. Streaming and other clients come in through the gateways' HTTP; greedy and sampled answers are
compared piece by piece. The bar: no accepted request fails but those of a killed gateway, no token is duplicated or
missing, no pause between two tokens of a stream is as long as 3 s.
"""

import argparse
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mesh.errors import UserError
from tests.tools.harm.faults import churn, clients, messages, processes
from tests.tools.harm.faults.trial import Reference, Trial
from tests.tools.harm.harm import Harm, choose
from tests.tools.harm.meshes import deploy, kinds
from tests.tools.harm.running import RunningMesh, WaitedInVainError, running
from tests.tools.harm.verdict import Row

MESHES = kinds("chaos")
FAMILIES = (processes, clients, churn, messages)
HARMS = sorted((one for family in FAMILIES for one in family.FAULTS), key=lambda one: MESHES.index(one.mesh))
CHURN_S, SHORT_CHURN_S = 180.0, 8.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--churn", type=float, metavar="SECONDS", help=f"how long churn lasts (default: {CHURN_S:g})")


def plan(options: argparse.Namespace) -> list[list[Harm]]:
    """What runs at a time, in order. Raise `UserError` if there is nothing of a name."""
    return [[one] for one in choose(HARMS, options.only, is_short=options.short)]


@dataclass(frozen=True, slots=True)
class Lab:
    """A mesh, and a healthy one beside it."""

    mesh: RunningMesh
    reference: Reference
    churn_s: float
    is_short: bool

    async def run(self, harms: Sequence[Harm], random: Random) -> Row:
        [fault], began_at = harms, time.monotonic()
        trial = Trial(self.mesh, self.reference, random, self.churn_s, self.is_short)
        try:
            trial.probe()
            await fault.run(trial)
        except (WaitedInVainError, UserError) as error:
            trial.broken.append(str(error))
        await trial.finish()
        return Row(
            name=fault.name,
            family=fault.family,
            title=fault.title,
            took_s=time.monotonic() - began_at,
            honest=trial.testimony.summary(),
            limit_s=trial.limit_s,
            broken=trial.broken,
            notes=trial.notes,
        )


@asynccontextmanager
async def standing(kind: str, folder: Path, options: argparse.Namespace) -> AsyncIterator[Lab]:
    """A mesh of that kind until the end of the block. Raise `UserError` if it does not start."""
    cache, healthy = folder.parent / "cache", folder / "healthy"
    healthy.mkdir()
    churn_s = options.churn or (SHORT_CHURN_S if options.short else CHURN_S)
    known_good, faulty = deploy(healthy, "healthy"), deploy(folder, "chaos", kind)
    async with running(known_good, cache) as known, running(faulty, cache) as mesh:
        yield Lab(mesh, Reference(known.deployment.ports[0]), churn_s, options.short)
