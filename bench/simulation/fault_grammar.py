"""Faults as people write them, on the command line or in a file.

On the command line, T is when it begins and D for how long it lasts, in seconds of the trace::

    --kill ENGINE@T[+D]             killed; started again D later, if D is there
    --hang ENGINE@T+D               neither hears nor does anything
    --partition A,B@T+D             what A and B send to each other waits
    --loss P[:A,B][@T+D]            messages (between A and B) are lost with probability P

A name may be a pattern, as in ``decode-*``. In a file, the same faults are TOML tables: see docs/simulation.md.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Annotated

import msgspec

from bench.simulation.faults import Fault, Hang, Kill, Loss, Partition
from mesh.errors import UserError
from mesh.topology.schema import Topology

Moment = Annotated[float, msgspec.Meta(ge=0)]
Duration = Annotated[float, msgspec.Meta(gt=0)]
Pair = Annotated[list[str], msgspec.Meta(min_length=2, max_length=2)]


class KillTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: str
    at_s: Moment
    restart_after_s: Duration | None = None


class HangTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    engine: str
    at_s: Moment
    for_s: Duration


class PartitionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    between: Pair
    at_s: Moment
    for_s: Duration


class LossTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``at_s`` and ``for_s`` are both there or both missing."""

    probability: Annotated[float, msgspec.Meta(gt=0, le=1)]
    between: Pair = msgspec.field(default_factory=lambda: ["*", "*"])
    at_s: Moment | None = None
    for_s: Duration | None = None


class FaultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists of tables, as in ``[[kill]]``."""

    kill: list[KillTable] = []
    hang: list[HangTable] = []
    partition: list[PartitionTable] = []
    loss: list[LossTable] = []


Table = KillTable | HangTable | PartitionTable | LossTable

# --- the command line -------------------------------------------------------------------------------------------------


def parse_kill(text: str) -> KillTable:
    """``ENGINE@T[+D]``. Raise `ValueError`, as all these do, saying what would be right."""
    engine, at_s, for_s = _what_and_when(text, "decode-0@120 or decode-0@120+5")
    return KillTable(engine, at_s, for_s)


def parse_hang(text: str) -> HangTable:
    """``ENGINE@T+D``."""
    example = "decode-0@120+5"
    engine, at_s, for_s = _what_and_when(text, example)
    return HangTable(engine, at_s, _needed(text, for_s, example))


def parse_partition(text: str) -> PartitionTable:
    """``A,B@T+D``."""
    example = "prefill-0,decode-*@10+3"
    names, at_s, for_s = _what_and_when(text, example)
    return PartitionTable(_pair(text, names, example), at_s, _needed(text, for_s, example))


def parse_loss(text: str) -> LossTable:
    """``P[:A,B][@T+D]``."""
    example = "0.01 or 0.01:decode-*,gateway@10+5"
    what, at, _ = text.partition("@")
    chance, colon, names = what.partition(":")
    probability = _number(text, chance, example)
    if not 0 < probability <= 1:
        raise ValueError(f"{text!r}: {chance} is no probability; use more than 0, up to 1")
    between = _pair(text, names, example) if colon else ["*", "*"]
    if not at:
        return LossTable(probability, between)
    _, at_s, for_s = _what_and_when(text, example)
    return LossTable(probability, between, at_s, _needed(text, for_s, example))


def _what_and_when(text: str, example: str) -> tuple[str, float, float | None]:
    what, _, when = text.rpartition("@")
    at, plus, duration = when.partition("+")
    if not what:
        raise _misfit(text, example)
    at_s, for_s = _number(text, at, example), _number(text, duration, example) if plus else None
    if at_s < 0 or (for_s is not None and for_s <= 0):
        raise _misfit(text, example)
    return what, at_s, for_s


def _pair(text: str, names: str, example: str) -> list[str]:
    pair = [name.strip() for name in names.split(",")]
    if len(pair) != 2 or not all(pair):
        raise _misfit(text, example)
    return pair


def _number(text: str, number: str, example: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = inf
    if not abs(value) < inf:
        raise _misfit(text, example)
    return value


def _needed(text: str, for_s: float | None, example: str) -> float:
    if for_s is None:
        raise _misfit(text, example)
    return for_s


def _misfit(text: str, example: str) -> ValueError:
    return ValueError(f"{text!r} does not fit; write it like {example}")


# --- files ------------------------------------------------------------------------------------------------------------


def read_faults(path: Path) -> list[Table]:
    """Raise `UserError`."""
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise UserError(f"--faults: {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--faults: {path}: not TOML: {error}") from None
    try:
        tables = msgspec.convert(document, FaultFile)
    except msgspec.ValidationError as error:
        raise UserError(f"--faults: {path}: {_mistake(str(error))}") from None
    for number, loss in enumerate(tables.loss):
        if (loss.at_s is None) != (loss.for_s is None):
            raise UserError(f"--faults: {path}: loss[{number}]: give both at_s and for_s, or neither")
    return [*tables.kill, *tables.hang, *tables.partition, *tables.loss]


def _mistake(error: str) -> str:
    """In one line: where, what, and the keys that there are."""
    text, _, place = error.partition(" - at `$.")
    where = place.rstrip("`")
    kind = where.partition("[")[0]
    table = {"kill": KillTable, "hang": HangTable, "partition": PartitionTable, "loss": LossTable}.get(kind, FaultFile)
    keys = ", ".join(table.__struct_fields__)
    return f"{where + ': ' if where else ''}{text[:1].lower()}{text[1:]}; it has {keys}"


# --- what they mean in a topology -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Names:
    """The processes that faults can befall."""

    topology: Topology

    def engines(self, pattern: str) -> list[str]:
        return self._matching(pattern, "engine", [engine.id for engine in self.topology.engines])

    def processes(self, pattern: str) -> tuple[str, ...]:
        return tuple(self._matching(pattern, "process", [spec.id for spec in self.topology.processes]))

    def _matching(self, pattern: str, kind: str, names: Sequence[str]) -> list[str]:
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise UserError(f"faults: no {kind} {pattern!r} in {self.topology.path}; there are {', '.join(names)}")
        return found


def resolve(tables: Iterable[Table], topology: Topology) -> list[Fault]:
    """Each pattern's processes. Raise `UserError` if there is none."""
    names = Names(topology)
    return [fault for table in tables for fault in _faults(table, names)]


def _faults(table: Table, names: Names) -> list[Fault]:
    match table:
        case KillTable(engine, at_s, restart_after_s):
            return [Kill(name, at_s, restart_after_s) for name in names.engines(engine)]
        case HangTable(engine, at_s, for_s):
            return [Hang(name, at_s, for_s) for name in names.engines(engine)]
        case PartitionTable(between, at_s, for_s):
            some, others = map(names.processes, between)
            return [Partition(some, others, at_s, for_s)]
        case LossTable(probability, between, begins_s, lasts_s):
            some, others = map(names.processes, between)
            if begins_s is None or lasts_s is None:
                return [Loss(probability, some, others)]
            return [Loss(probability, some, others, begins_s, lasts_s)]
