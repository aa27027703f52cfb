"""Meshes for scenarios: started when the first one needs them, used by all that follow, replaced after a failure."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.chaos import deployment
from bench.chaos.deployment import Backend
from bench.chaos.reference import Reference
from bench.chaos.running import RunningMesh, WaitedInVainError, running
from bench.chaos.scenarios.registry import HOSTS, PLACED, PLAIN, RELAYED, Scenario
from bench.chaos.trial import Effort, Trial
from bench.chaos.verdict import Row
from bench.models.tiny_llama import write_tiny_model

WRITERS = {
    PLAIN: deployment.plain,
    HOSTS: deployment.across_hosts,
    PLACED: deployment.placed,
    RELAYED: deployment.relayed,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """``seed`` draws prompts, lengths and random events; moments depend on the machine as well."""

    backend: Backend
    seed: int
    is_quick: bool
    churn_s: float


class Lab:
    """Use as a context manager; ``folder`` takes models, topologies, logs and caches."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        self._model = write_tiny_model(folder / "model", max_context=2 * deployment.MAX_CONTEXT)
        self._stack = AsyncExitStack()
        self._meshes: dict[str, tuple[RunningMesh, AsyncExitStack]] = {}
        self._num_started = 0
        self._reference: Reference | None = None

    async def __aenter__(self) -> "Lab":
        folder = self._folder / "reference"
        folder.mkdir()
        reference = deployment.reference(folder, self._model, self._settings.backend)
        self._reference = Reference(await self._stack.enter_async_context(running(reference, self._folder / "cache")))
        return self

    async def __aexit__(self, *_: object) -> None:
        for kind in list(self._meshes):
            await self._stop(kind)
        await self._stack.aclose()

    async def run(self, scenario: Scenario) -> Row:
        """Raise `UserError` if no mesh can be started."""
        assert self._reference is not None, "the lab is open"
        mesh = await self._mesh(scenario.mesh)
        settings = self._settings
        effort = Effort.of(settings.backend, is_quick=settings.is_quick)
        random = Random(f"{settings.seed} {scenario.name}")
        trial = Trial(mesh, self._reference, random, effort, settings.churn_s)
        began_at = time.monotonic()
        try:
            trial.probe()
            await scenario.run(trial)
        except WaitedInVainError as error:
            trial.tally.complain(str(error))
        await trial.finish()
        row = _row(scenario, trial, time.monotonic() - began_at)
        if not row.is_passed:
            await self._stop(scenario.mesh)
        return row

    async def _mesh(self, kind: str) -> RunningMesh:
        """One at a time, besides the healthy one: idle meshes would take part of the machine."""
        if kind not in self._meshes:
            for other in list(self._meshes):
                await self._stop(other)
            write = WRITERS[kind]
            self._num_started += 1
            folder = self._folder / f"{kind}-{self._num_started}"
            stack = AsyncExitStack()
            folder.mkdir()
            plan = write(folder, self._model, self._settings.backend)
            self._meshes[kind] = (await stack.enter_async_context(running(plan, self._folder / "cache")), stack)
        return self._meshes[kind][0]

    async def _stop(self, kind: str) -> None:
        _, stack = self._meshes.pop(kind)
        await stack.aclose()


def _row(scenario: Scenario, trial: Trial, took_s: float) -> Row:
    fault_at, ready_at = trial.fault_at, trial.ready_at
    return Row(
        scenario.name,
        scenario.title,
        trial.tally,
        trial.gap_limit_s,
        trial.recovery_s,
        None if fault_at is None or ready_at is None else ready_at - fault_at,
        took_s,
        trial.notes,
        trial.stories,
    )
