"""The runs that figures are made of, each kept in a file: what was run once is not run again."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.papers.seallm.testbed.plans import Effort, make_plan
from bench.papers.seallm.testbed.run import Result, serve
from bench.papers.seallm.testbed.scene import Inputs, Scene, make_world
from bench.papers.seallm.testbed.systems import SYSTEMS, Planner
from mesh.errors import UserError
from router.placement.search.plan import Plan

Kept = TypeVar("Kept", Plan, Result)


@dataclass(frozen=True, slots=True)
class Cell:
    """A system in a scene."""

    system: str
    scene: Scene

    @property
    def name(self) -> str:
        return f"{self.system}-{_words(self.scene)}"

    @property
    def planner(self) -> Planner:
        return SYSTEMS[self.system].planner

    @property
    def planned(self) -> Scene:
        """Return the scene as plans know it, without errors and skews to come."""
        return replace(self.scene, error=0.0, in_a_row=0)

    @property
    def plan_name(self) -> str:
        """Return the name that all systems and scenes with the same plan share."""
        return f"{self.planner}-{_words(self.planned)}"


def _words(scene: Scene) -> str:
    extra = [f"row{scene.in_a_row}"] * bool(scene.in_a_row) + [f"error{scene.error:g}"] * bool(scene.error)
    always = (f"{scene.rate:g}rps", f"{scene.span_s:g}s", f"{scene.num_devices}gpus", *extra, f"seed{scene.seed}")
    return "-".join(always)


@dataclass(frozen=True, slots=True)
class Lab:
    """Makes plans and runs, or reads those that it made before. Paths of inputs are absolute, as processes share it."""

    inputs: Inputs
    effort: Effort
    folder: Path

    def check(self) -> None:
        """Raise `UserError` if what the folder holds was made of other inputs."""
        path = self.folder / "inputs.json"
        mine = msgspec.json.format(msgspec.json.encode((self.inputs, self.effort), enc_hook=str))
        if path.exists() and path.read_bytes() != mine:
            raise UserError(f"{self.folder}: holds runs of other inputs or efforts (inputs.json); use another --out")
        _write(path, mine)

    def plan(self, cell: Cell) -> Plan:
        def make() -> Plan:
            return make_plan(cell.planner, make_world(self.inputs), cell.planned, self.effort)

        return _kept(self.folder / "plans" / f"{cell.plan_name}.json", Plan, make)

    def run(self, cell: Cell) -> Result:
        def make() -> Result:
            return serve(SYSTEMS[cell.system], self.plan(cell), make_world(self.inputs), cell.scene)

        return _kept(self.folder / "cells" / f"{cell.name}.json", Result, make)

    def has(self, cell: Cell) -> bool:
        return (self.folder / "cells" / f"{cell.name}.json").exists()


def _kept(path: Path, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    made = make()
    _write(path, msgspec.json.encode(made))
    return made


def _write(path: Path, content: bytes) -> None:
    """Write all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
