"""Makes the text that mypyc compiles of a module out of the module's own. Pure.

mypyc makes native classes: they need no slots, and cannot derive from exceptions. Of msgspec's structs it would make
others, silently: neither frozen nor tagged. So structs, with all of their module that they are made of, go to a module
of their own, which is not compiled.
"""

import ast
import re
from typing import NamedTuple

PLAIN_CLASS = "mypyc_attr(native_class=False)"
STRUCTS = "_structs"  # what the name of the module with the structs ends in
UNCHECKED = "# mypy: ignore-errors\n"  # the comments are gone that say where mypy is to look away


class Sources(NamedTuple):
    """``compiled``: the text to compile. ``structs``: of the module that stays as it is; None: there are no structs."""

    compiled: str
    structs: str | None


def sources(text: str, module: str) -> Sources:
    """Return what is to be made of a module's text."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if _is_import(node)]
    apart = _structs(tree.body)
    names = [name for node in apart for name in _defined(node)]
    structs = UNCHECKED + ast.unparse(ast.Module([*imports, *apart], [])) if apart else None
    body = [node for node in tree.body if node not in apart]
    if names:
        body.insert(_after_imports(body), ast.parse(f"from {module}{STRUCTS} import {', '.join(names)}").body[0])
    tree.body = body
    classes = _Classes()
    classes.visit(tree)
    if classes.has_exceptions:
        body.insert(_after_imports(body), ast.parse("from mypy_extensions import mypyc_attr").body[0])
    return Sources(ast.unparse(ast.fix_missing_locations(tree)), structs)


def _structs(body: list[ast.stmt]) -> list[ast.stmt]:
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


def _after_imports(body: list[ast.stmt]) -> int:
    return 1 + max([index for index, node in enumerate(body) if _is_import(node)], default=-1)


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.rpartition(".")[2] for base in map(ast.unparse, node.bases)]


class _Classes(ast.NodeTransformer):
    def __init__(self) -> None:
        self.has_exceptions = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [part for part in node.body if not _is_slots(part)] or [ast.Pass()]
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):
                decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg != "slots"]
        if any(base == "Exception" or base.endswith("Error") for base in _bases(node)):
            self.has_exceptions = True
            node.decorator_list.append(ast.parse(PLAIN_CLASS, mode="eval").body)
        return node


def _is_slots(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__slots__"]
