"""Scenarios one after the other, each with a load whose answers are known.

A mesh of one prefill engine, two decode engines and two gateways is started with `mesh up`; a second, healthy one says
what answers should be. Streaming and other clients come in through the gateways' HTTP; greedy and sampled answers are
compared piece by piece. The bar: no accepted request fails but those of a killed gateway, no token is duplicated or
missing, no pause between two tokens of a stream is as long as 3 s.
"""

import argparse
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

from bench.harm.chaos.meshes import HOSTS, MAX_CONTEXT, PLACED, REFERENCE, RELAYED, SHAPES, deploy
from bench.harm.chaos.reference import Reference
from bench.harm.chaos.scenarios import churn, clients, messages, placement, processes
from bench.harm.chaos.trial import Trial
from bench.harm.chaos.verdict import ScenarioRow
from bench.harm.harm import PLAIN, Harm, choose
from bench.harm.running import RunningMesh, Stage, WaitedInVainError, running
from bench.models.tiny_llama import write_tiny_model
from mesh.errors import UserError

FAMILIES = (processes, clients, churn, placement, messages)
MESHES = (PLAIN, HOSTS, PLACED, RELAYED)
HARMS = sorted(
    (one for family in FAMILIES for one in family.SCENARIOS), key=lambda scenario: MESHES.index(scenario.mesh)
)
CHURN_S, SHORT_CHURN_S = 180.0, 8.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--churn", type=float, metavar="SECONDS", help=f"how long churn lasts (default: {CHURN_S:g})")


def plan(options: argparse.Namespace) -> list[Harm]:
    """Raise `UserError` if there is nothing of a name."""
    return choose(HARMS, options.only, is_short=options.short)


async def rows(scenarios: Sequence[Harm], options: argparse.Namespace, folder: Path) -> AsyncIterator[ScenarioRow]:
    """Raise `UserError` if no mesh can be started."""
    model = write_tiny_model(folder / "model", max_context=2 * MAX_CONTEXT)

    def start(kind: str, its_folder: Path) -> AbstractAsyncContextManager[RunningMesh]:
        shape = SHAPES.get(kind, REFERENCE)
        return running(deploy(its_folder, model, shape), folder / "cache")

    healthy, stage = Stage(folder, start), Stage(folder, start)
    try:
        reference = Reference((await healthy.mesh("reference")).deployment.ports[0])
        for scenario in scenarios:
            mesh = await stage.mesh(scenario.mesh)
            churn_s = options.churn or (SHORT_CHURN_S if options.short else CHURN_S)
            trial = Trial(mesh, reference, Random(f"{options.seed} {scenario.name}"), churn_s, options.short)
            row = await _try(scenario, trial)
            yield row
            if not row.is_passed:
                await stage.clear()
    finally:
        await stage.clear()
        await healthy.clear()


async def _try(scenario: Harm, trial: Trial) -> ScenarioRow:
    began_at = time.monotonic()
    try:
        trial.probe()
        await scenario.run(trial)
    except (WaitedInVainError, UserError) as error:
        trial.tally.complain(str(error))
    await trial.finish()
    fault_at, ready_at = trial.fault_at, trial.ready_at
    return ScenarioRow(
        name=scenario.name,
        title=scenario.title,
        took_s=time.monotonic() - began_at,
        tally=trial.tally,
        gap_limit_s=trial.gap_limit_s,
        recovery_s=trial.recovery_s,
        ready_s=None if fault_at is None or ready_at is None else ready_at - fault_at,
        notes=trial.notes,
    )
