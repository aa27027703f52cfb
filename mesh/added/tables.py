"""Tables of services that are added to a running mesh: as those of its file, in files of their own.

A table may say which ``engines`` get the service, by their tables' names. Without that all of the mesh's own do whose
backend loads services while it runs.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import tomli_w

from mesh.suggestions import suggestion
from mesh.topology.lines import KeyPath, LineIndex
from mesh.topology.reading import as_table, check_sections, named_tables, parse_toml
from mesh.topology.report import Report

SERVICES: Final = "services"
ENGINES: Final = "engines"
PATHS: Final = ("model", "tokenizer")  # keys whose values may be paths
ELSEWHERE: Final = ("pypi:", "hf:")  # what begins so is none


@dataclass(frozen=True, slots=True)
class AddedTable:
    """One service. ``table`` is as written, without ``engines``; None of those: they are not named."""

    name: str
    table: Mapping[str, Any]
    engines: tuple[str, ...] | None
    path: Path
    lines: LineIndex

    @property
    def where(self) -> KeyPath:
        return SERVICES, self.name

    def plain(self) -> dict[str, Any]:
        """Return the table as it can be kept anywhere: with whole paths."""
        engines = {} if self.engines is None else {ENGINES: list(self.engines)}
        return {key: self._whole(key, value) for key, value in self.table.items()} | engines

    def _whole(self, key: str, value: Any) -> Any:
        if key not in PATHS or not isinstance(value, str) or value.startswith(ELSEWHERE) or value == "server":
            return value
        return os.path.normpath(self.path.absolute().parent / os.path.expanduser(os.path.expandvars(value)))


def read_tables(path: Path, text: str) -> tuple[AddedTable, ...]:
    """Read a file of added services. Raise `TopologyError` with its faults, but for those of the tables themselves."""
    document, lines = parse_toml(path, text), LineIndex(text)
    report = Report(path, lines)
    check_sections(document, (SERVICES,), report)
    tables = named_tables(document, SERVICES, report)
    if not tables:
        report.add((SERVICES,), "no service; add [services.NAME] with a model")
    found = [
        _read(name, as_table(table, (SERVICES, name), report), path, lines, report) for name, table in tables.items()
    ]
    report.raise_if_any()
    return tuple(found)


def _read(name: str, table: Mapping[str, Any], path: Path, lines: LineIndex, report: Report) -> AddedTable:
    engines = table.get(ENGINES)
    if engines is not None and not (
        isinstance(engines, list) and engines and all(isinstance(one, str) for one in engines)
    ):
        report.add((SERVICES, name, ENGINES), f'{engines!r} names no engines; use for instance ["decode"]')
        engines = None
    rest = {key: value for key, value in table.items() if key != ENGINES}
    if not rest.keys().isdisjoint(("base", "adapter")):
        report.add((SERVICES, name), "is an adapter, which `mesh load NAME --adapter PATH` adds")
    return AddedTable(name, rest, None if engines is None else tuple(engines), path, lines)


def text_of(tables: Iterable[AddedTable]) -> str:
    """Return the text of one file with these services."""
    return tomli_w.dumps({SERVICES: {one.name: one.plain() for one in tables}})


def on_engines(one: AddedTable, engines: Iterable[str]) -> AddedTable:
    """Return the same service for these tables of engines."""
    return replace(one, engines=tuple(engines))


def fitting(tables: Iterable[AddedTable], names: Collection[str], engines: Collection[str]) -> tuple[AddedTable, ...]:
    """Return those that a file which has changed since leaves room for.

    ``names`` are those of its services, which count before added ones; ``engines`` its tables of engines.
    """
    kept = []
    for one in tables:
        there = None if one.engines is None else tuple(name for name in one.engines if name in engines)
        if one.name not in names and there != ():
            kept.append(replace(one, engines=there))
    return tuple(kept)


def check_engines(tables: Iterable[AddedTable], engines: Collection[str], report: Report) -> None:
    """Report engines that there are not."""
    for one in tables:
        for name in one.engines or ():
            if name not in engines:
                report.add((*one.where, ENGINES), f"unknown engine {name!r}; {suggestion(name, engines)}")


def names_for(tables: Iterable[AddedTable], engine: str, *, takes_more: bool) -> tuple[str, ...]:
    """Return which of the services the engines of a table get. ``takes_more``: they load services while they run."""
    return tuple(one.name for one in tables if (takes_more if one.engines is None else engine in one.engines))
