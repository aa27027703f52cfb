"""Faults as people write them, on the command line or in a file.

On the command line, T is when it begins and D for how long it lasts, in seconds of the trace::

    --kill PROCESS@T[+D]            killed; started again D later, if D is there
    --hang PROCESS@T+D              neither hears nor does anything
    --slow K:ENGINE[@T+D]           its steps take K times as long
    --fail-load P[:ENGINE][@T+D]    services that it is told to load cannot be read with probability P
    --partition A,B@T+D             what A and B send to each other waits
    --loss P[:A,B][@T+D]            messages (between A and B) are lost with probability P
    --duplicate P[:A,B][@T+D]       they come twice with probability P
    --reorder P[:A,B][@T+D]         those behind them overtake them with probability P
    --delay S[:A,B][@T+D]           they are late by up to S seconds, and so are those behind them

A name may be a pattern, as in ``decode-*``. In a file, the same faults are TOML tables: see concepts/simulation.md.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import Annotated, get_args

import msgspec

from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import Topology
from mesh.wire.messages import EngineAnswer, EngineMessage
from simulation.faults.faults import (
    LATE_S,
    Delay,
    Duplicate,
    FailLoad,
    Fault,
    Hang,
    Kill,
    Loss,
    Partition,
    Reorder,
    Slow,
)

Moment = Annotated[float, msgspec.Meta(ge=0)]
Duration = Annotated[float, msgspec.Meta(gt=0)]
Probability = Annotated[float, msgspec.Meta(gt=0, le=1)]
Pair = Annotated[list[str], msgspec.Meta(min_length=2, max_length=2)]
EVERYBODY = ["*", "*"]
MESSAGES = tuple(kind.__name__ for kind in get_args(EngineMessage | EngineAnswer))


class KillTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    process: str
    at_s: Moment
    restart_after_s: Duration | None = None


class HangTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    process: str
    at_s: Moment
    for_s: Duration


class PartitionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    between: Pair
    at_s: Moment
    for_s: Duration


class SlowTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine that is slow for a while. ``at_s`` and ``for_s`` are both there or both missing, as in all that
    follow.
    """

    factor: Duration
    engine: str
    at_s: Moment | None = None
    for_s: Duration | None = None


class FailLoadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probability: Probability
    engine: str = "*"
    at_s: Moment | None = None
    for_s: Duration | None = None


class LossTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are lost. ``messages`` are the names of those that may be lost, as in `mesh.wire`; none: all."""

    probability: Probability
    between: Pair = msgspec.field(default_factory=EVERYBODY.copy)
    at_s: Moment | None = None
    for_s: Duration | None = None
    messages: list[str] = []


class DuplicateTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probability: Probability
    between: Pair = msgspec.field(default_factory=EVERYBODY.copy)
    at_s: Moment | None = None
    for_s: Duration | None = None
    late_s: Duration = LATE_S


class ReorderTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probability: Probability
    between: Pair = msgspec.field(default_factory=EVERYBODY.copy)
    at_s: Moment | None = None
    for_s: Duration | None = None
    late_s: Duration = LATE_S


class DelayTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    up_to_s: Duration
    between: Pair = msgspec.field(default_factory=EVERYBODY.copy)
    at_s: Moment | None = None
    for_s: Duration | None = None


class FaultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists of tables, as in ``[[kill]]``."""

    kill: list[KillTable] = []
    hang: list[HangTable] = []
    slow: list[SlowTable] = []
    fail_load: list[FailLoadTable] = []
    partition: list[PartitionTable] = []
    loss: list[LossTable] = []
    duplicate: list[DuplicateTable] = []
    reorder: list[ReorderTable] = []
    delay: list[DelayTable] = []


MessageTable = LossTable | DuplicateTable | ReorderTable | DelayTable
Table = KillTable | HangTable | SlowTable | FailLoadTable | PartitionTable | MessageTable
TABLES: Mapping[str, type[msgspec.Struct]] = {
    "kill": KillTable,
    "hang": HangTable,
    "slow": SlowTable,
    "fail_load": FailLoadTable,
    "partition": PartitionTable,
    "loss": LossTable,
    "duplicate": DuplicateTable,
    "reorder": ReorderTable,
    "delay": DelayTable,
}

# --- the command line -------------------------------------------------------------------------------------------------


def parse_kill(text: str) -> KillTable:
    """Parse a death: ``PROCESS@T[+D]``. Raise `ValueError`, as all these do, saying what would be right."""
    process, at_s, for_s = _what_and_when(text, "decode-0@120 or decode-0@120+5")
    return KillTable(process, at_s, for_s)


def parse_hang(text: str) -> HangTable:
    """Parse a hang: ``PROCESS@T+D``."""
    example = "decode-0@120+5"
    process, at_s, for_s = _what_and_when(text, example)
    return HangTable(process, at_s, _needed(text, for_s, example))


def parse_partition(text: str) -> PartitionTable:
    """Parse a partition: ``A,B@T+D``."""
    example = "prefill-0,decode-*@10+3"
    names, at_s, for_s = _what_and_when(text, example)
    return PartitionTable(_pair(text, names, example), at_s, _needed(text, for_s, example))


def parse_slow(text: str) -> SlowTable:
    """Parse a slow engine: ``K:ENGINE[@T+D]``."""
    example = "3:decode-0 or 3:decode-*@10+5"
    factor, engine, at_s, for_s = _measured(text, example)
    if not engine:
        raise _misfit(text, example)
    return SlowTable(factor, engine, at_s, for_s)


def parse_fail_load(text: str) -> FailLoadTable:
    """Parse loads that fail: ``P[:ENGINE][@T+D]``."""
    example = "0.5 or 1:decode-*@10+5"
    probability, engine, at_s, for_s = _measured(text, example)
    if engine == "":
        raise _misfit(text, example)
    return FailLoadTable(_probability(text, probability), engine or "*", at_s, for_s)


def parse_loss(text: str) -> LossTable:
    """Parse losses: ``P[:A,B][@T+D]``."""
    return LossTable(*_likely(text))


def parse_duplicate(text: str) -> DuplicateTable:
    """Parse duplicates: ``P[:A,B][@T+D]``."""
    return DuplicateTable(*_likely(text))


def parse_reorder(text: str) -> ReorderTable:
    """Parse reorderings: ``P[:A,B][@T+D]``."""
    return ReorderTable(*_likely(text))


def parse_delay(text: str) -> DelayTable:
    """Parse delays: ``S[:A,B][@T+D]``."""
    return DelayTable(*_between(text, "0.1 or 0.1:decode-*,gateway@10+5"))


def _likely(text: str) -> tuple[float, list[str], float | None, float | None]:
    probability, between, at_s, for_s = _between(text, "0.01 or 0.01:decode-*,gateway@10+5")
    return _probability(text, probability), between, at_s, for_s


def _probability(text: str, number: float) -> float:
    if number > 1:
        raise ValueError(f"{text!r}: {number:g} is no probability; use more than 0, up to 1")
    return number


def _between(text: str, example: str) -> tuple[float, list[str], float | None, float | None]:
    amount, names, at_s, for_s = _measured(text, example)
    return amount, EVERYBODY.copy() if names is None else _pair(text, names, example), at_s, for_s


def _measured(text: str, example: str) -> tuple[float, str | None, float | None, float | None]:
    """``NUMBER[:NAMES][@T+D]``."""
    what, at, _ = text.partition("@")
    number, colon, names = what.partition(":")
    amount = _number(text, number, example)
    if amount <= 0:
        raise _misfit(text, example)
    if not at:
        return amount, names if colon else None, None, None
    _, at_s, for_s = _what_and_when(text, example)
    return amount, names if colon else None, at_s, _needed(text, for_s, example)


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
    for kind in ("slow", "fail_load", "loss", "duplicate", "reorder", "delay"):
        for number, table in enumerate(getattr(tables, kind)):
            if (table.at_s is None) != (table.for_s is None):
                raise UserError(f"--faults: {path}: {kind}[{number}]: give both at_s and for_s, or neither")
    return [table for kind in TABLES for table in getattr(tables, kind)]


def _mistake(error: str) -> str:
    """In one line: where, what, and the keys that there are."""
    text, _, place = error.partition(" - at `$.")
    where = place.rstrip("`")
    keys = ", ".join(TABLES.get(where.partition("[")[0], FaultFile).__struct_fields__)
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
            raise UserError(f"faults: no {kind} {pattern!r} in {self.topology.path}; {suggestion(pattern, names)}")
        return found


def resolve(tables: Iterable[Table], topology: Topology) -> list[Fault]:
    """Each pattern's processes. Raise `UserError` if there is none."""
    names = Names(topology)
    return [fault for table in tables for fault in _faults(table, names)]


def _faults(table: Table, names: Names) -> list[Fault]:
    match table:
        case KillTable(process, at_s, restart_after_s):
            return [Kill(name, at_s, restart_after_s) for name in names.processes(process)]
        case HangTable(process, at_s, for_s):
            return [Hang(name, at_s, for_s) for name in names.processes(process)]
        case SlowTable(factor, engine):
            return [Slow(name, factor, *_when(table)) for name in names.engines(engine)]
        case FailLoadTable(probability, engine):
            return [FailLoad(name, probability, *_when(table)) for name in names.engines(engine)]
        case PartitionTable(between, at_s, for_s):
            some, others = map(names.processes, between)
            return [Partition(some, others, at_s, for_s)]
        case _:
            some, others = map(names.processes, table.between)
            return [_of_messages(table, some, others)]


def _of_messages(table: MessageTable, some: tuple[str, ...], others: tuple[str, ...]) -> Fault:
    match table:
        case LossTable(probability):
            if unknown := [name for name in table.messages if name not in MESSAGES]:
                raise UserError(f"faults: no message {unknown[0]!r}; {suggestion(unknown[0], MESSAGES)}")
            return Loss(probability, some, others, *_when(table), tuple(table.messages))
        case DuplicateTable(probability):
            return Duplicate(probability, some, others, *_when(table), table.late_s)
        case ReorderTable(probability):
            return Reorder(probability, some, others, *_when(table), table.late_s)
        case DelayTable(up_to_s):
            return Delay(up_to_s, some, others, *_when(table))


def _when(table: SlowTable | FailLoadTable | MessageTable) -> tuple[float, float]:
    """All the time, if it does not say."""
    return table.at_s or 0.0, table.for_s or inf
