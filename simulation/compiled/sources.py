"""Makes the text that mypyc compiles of a module out of the module's own. Pure.

mypyc makes native classes: they need no slots, and cannot derive from exceptions. Of msgspec's structs it would make
others, silently: neither frozen nor tagged. So structs, with all of their module that they are made of, go to a module
of their own, which is not compiled. What stays of a text stays on its line: stack traces name the lines of the source.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mesh.process.compiled_core import STRUCTS

PLAIN_CLASS = "@mypyc_attr(native_class=False)"
IMPORT_PLAIN = "from mypy_extensions import mypyc_attr"


class Sources(NamedTuple):
    """``compiled``: the text to compile. ``structs``: of the module that stays as it is; None: there are no structs."""

    compiled: str
    structs: str | None


def sources(text: str, module: str) -> Sources:
    """Return what is to be made of a module's text. Raise `ValueError` where no blank line is for what it adds."""
    body = ast.parse(text).body
    apart = _structs(body)
    structs = _without(text, [node for node in body if node not in apart and not _is_import(node)]) if apart else None
    names = [name for node in apart for name in _defined(node)]
    adds = [f"from {module}{STRUCTS} import {', '.join(names)}"] if names else []
    lines = _Lines(text)
    for node in apart:
        lines.blank(node)
    for left in body:
        if left not in apart:
            for part in ast.walk(left):
                if isinstance(part, ast.ClassDef) and _make_native(part, lines) and IMPORT_PLAIN not in adds:
                    adds.append(IMPORT_PLAIN)
    if adds:
        lines.add(max(_last_line(node) for node in body if _is_import(node)) + 1, "; ".join(adds))
    return Sources(str(lines), structs)


class _Lines:
    """The lines of a text. They are counted from 1, and never move."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"

    def blank(self, node: ast.stmt) -> None:
        """Take a statement out."""
        first = _first_line(node)
        self._lines[first - 1 : node.end_lineno] = [""] * (_last_line(node) - first + 1)

    def replace(self, node: ast.stmt | ast.expr, text: str) -> None:
        """Put one line in the place of what begins and ends with lines of its own."""
        self._lines[node.lineno - 1 : node.end_lineno] = [text, *[""] * (_last_line(node) - node.lineno)]

    def add(self, number: int, text: str) -> None:
        """Write into a blank line."""
        if self._lines[number - 1].strip():
            raise ValueError(f"line {number} is not blank: {self._lines[number - 1]}")
        self._lines[number - 1] = text


def _without(text: str, nodes: Sequence[ast.stmt]) -> str:
    lines = _Lines(text)
    for node in nodes:
        lines.blank(node)
    return str(lines)


def _make_native(node: ast.ClassDef, lines: _Lines) -> bool:
    """Prepare a class. Return whether it has to stay one of the interpreter's."""
    margin = " " * node.col_offset
    for part in node.body:
        if _is_slots(part):
            lines.replace(part, f"{margin}    pass" if len(node.body) == 1 else "")
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and any(keyword.arg == "slots" for keyword in decorator.keywords):
            decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg != "slots"]
            lines.replace(decorator, f"{margin}@{ast.unparse(decorator)}")
    is_plain = any(base == "Exception" or base.endswith("Error") for base in _bases(node))
    if is_plain:
        lines.add(_first_line(node) - 1, margin + PLAIN_CLASS)
    return is_plain


def _structs(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The structs of a module, what derives from them, and what they refer to."""
    definitions = {name: node for node in body for name in _defined(node)}
    apart: list[ast.stmt] = []
    for node in body:
        bases = _bases(node) if isinstance(node, ast.ClassDef) else []
        if "Struct" in bases or any(definitions.get(base) in apart for base in bases):
            _add(node, definitions, apart)
    return [node for node in body if node in apart]


def _add(node: ast.stmt, definitions: dict[str, ast.stmt], apart: list[ast.stmt]) -> None:
    if node not in apart:
        apart.append(node)
        for name in _names(node):
            if name in definitions:
                _add(definitions[name], definitions, apart)


def _names(node: ast.stmt) -> set[str]:
    """All names in it, those in annotations that are strings among them."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return found.union(*(re.findall(r"\w+", text) for text in texts if " " not in text))


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _first_line(node: ast.stmt) -> int:
    return min(_lines_of(node))


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _lines_of(node: ast.stmt) -> Iterator[int]:
    yield node.lineno
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (decorator.lineno for decorator in node.decorator_list)


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.rpartition(".")[2] for base in map(ast.unparse, node.bases)]


def _is_slots(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__slots__"]
