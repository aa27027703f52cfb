"""The runs that figures are made of, each kept in a file: what was run once is not run again."""

import os
from collections.abc import Callable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Placing:
    """A planner's work for a scene, for all systems that use it."""

    planner: Planner
    scene: Scene

    @property
    def name(self) -> str:
        return f"{self.planner}-{_words(self.scene)}"


def _words(scene: Scene) -> str:
    extra = [f"row{scene.in_a_row}"] * bool(scene.in_a_row) + [f"error{scene.error:g}"] * bool(scene.error)
    always = (f"{scene.rate:g}rps", f"{scene.span_s:g}s", f"{scene.num_devices}gpus", *extra, f"seed{scene.seed}")
    return "-".join(always)


@dataclass(frozen=True, slots=True)
class Lab:
    """Makes plans and runs, or reads them. Paths of inputs are absolute. For a pool of processes."""

    inputs: Inputs
    effort: Effort
    folder: Path

    def check(self) -> None:
        """That what the folder holds was made of the same inputs. Raises `UserError`."""
        path = self.folder / "inputs.json"
        mine = msgspec.json.format(msgspec.json.encode((self.inputs, self.effort), enc_hook=str))
        if path.exists() and path.read_bytes() != mine:
            raise UserError(f"{self.folder}: holds runs of other inputs or efforts (inputs.json); use another --out")
        _write(path, mine)

    def place(self, placing: Placing) -> Plan:
        def make() -> Plan:
            return make_plan(placing.planner, make_world(self.inputs), placing.scene, self.effort)

        return _kept(self.folder / "plans" / f"{placing.name}.json", Plan, make)

    def run(self, cell: Cell) -> Result:
        def make() -> Result:
            return serve(SYSTEMS[cell.system], self.place(placing(cell)), make_world(self.inputs), cell.scene)

        return _kept(self.folder / "cells" / f"{cell.name}.json", Result, make)

    def has(self, cell: Cell) -> bool:
        return (self.folder / "cells" / f"{cell.name}.json").exists()


def placing(cell: Cell) -> Placing:
    """Plans know nothing of errors and skews to come."""
    return Placing(SYSTEMS[cell.system].planner, replace(cell.scene, error=0.0, in_a_row=0))


def placings(cells: Sequence[Cell]) -> Iterator[Placing]:
    """That the cells need, each once."""
    yield from dict.fromkeys(placing(cell) for cell in cells)


def _kept(path: Path, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=kind)
    made = make()
    _write(path, msgspec.json.encode(made))
    return made


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
