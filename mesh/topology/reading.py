"""Reads one table of a topology file by its keys, and says what is wrong with it."""

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mesh.suggestions import suggestion
from mesh.topology.keys import Keys
from mesh.topology.lines import KeyPath
from mesh.topology.report import Report, TopologyError

_SYNTAX_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")
_SERVICE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:/-]*$")


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Raise `TopologyError` with the line of what is no TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), len(text.splitlines())
        if place := _SYNTAX_LINE.search(message):
            message, line = message[: place.start()], int(place[1])
        raise TopologyError([f"{path}:{line}: not valid TOML: {message}"]) from None


def read_table(table: object, where: KeyPath, keys: Keys, report: Report) -> dict[str, Any]:
    """Fields by name, of the keys that are there and right; the others are reported."""
    fields = {}
    for name, value in as_table(table, where, report).items():
        key = keys.get(name)
        if key is None:
            report.add((*where, name), f"unknown key; {suggestion(name, keys)}")
            continue
        try:
            fields[key.field] = key.read(value)
        except ValueError as error:
            report.add((*where, name), str(error))
    return fields


def require(table: object, name: str, where: KeyPath, wanted: str, report: Report) -> None:
    if isinstance(table, Mapping) and name not in table:
        report.add(where, f"has no {name}; add {name} = {wanted}")


def as_table(value: object, where: KeyPath, report: Report) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    report.add(where, f"is not a table; write [{'.'.join(where)}] and its keys below")
    return {}


def named_tables(document: Mapping[str, Any], section: str, report: Report) -> dict[str, object]:
    """The tables of a section like ``[engines.NAME]``, without those whose name cannot be used."""
    pattern = _SERVICE_NAME if section == "services" else _NAME
    tables = dict(as_table(document.get(section, {}), (section,), report))
    for name in [name for name in tables if not pattern.match(name)]:
        report.add((section, name), "is not a usable name; use letters, digits, '.', '-' and '_'")
        del tables[name]
    return tables


def check_sections(document: Mapping[str, Any], known: Collection[str], report: Report) -> None:
    for section in document:
        if section not in known:
            report.add((section,), f"unknown section; {suggestion(section, known)}")
