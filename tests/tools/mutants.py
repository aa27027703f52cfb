"""Finds the small defects that could be written into a module: each changes one line."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
CONTAINED = {"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
SUMMED = {"+": "-", "-": "+"}
JOINED = {"and": "or", "or": "and"}
LOGGING = ("log.", "logger.")  # what is logged decides nothing


@dataclass(frozen=True)
class Mutant:
    """One line of a module, and what stands there instead."""

    path: str
    line: int  # from 1
    before: str
    after: str

    def apply(self, source: str) -> str:
        """Return the module's text with the defect."""
        lines = source.split("\n")
        lines[self.line - 1] = self.after
        return "\n".join(lines)


def mutants(path: str, source: str) -> list[Mutant]:
    """Return the defects of all functions of a module, in the order of its lines."""
    lines = source.split("\n")
    found = {
        Mutant(path, number, lines[number - 1], after)
        for number, after in _changed_lines(ast.parse(source), lines)
        if not any(word in lines[number - 1] for word in LOGGING)
    }
    return sorted((mutant for mutant in found if _compiles(mutant.apply(source))), key=lambda m: (m.line, m.after))


def _changed_lines(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str]]:
    for node in _nodes_in_functions(tree):
        place = node.test if isinstance(node, ast.If) else node
        line = lines[place.lineno - 1]
        if place.lineno == place.end_lineno and line.isascii():  # the columns of nodes count bytes
            for start, end, text in _edits(node, line):
                yield place.lineno, line[:start] + text + line[end:]


def _nodes_in_functions(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for statement in (statement for function in functions for statement in function.body):
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.expr | ast.stmt))


def _edits(node: ast.expr | ast.stmt, line: str) -> Iterator[tuple[int, int, str]]:
    """Yield from which column to which column what text is written instead."""
    match node:
        case ast.Compare(left=left, ops=[_], comparators=[right]):
            yield from _swapped(line, left, right, COMPARED | CONTAINED)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            yield from _swapped(line, left, right, SUMMED)
        case ast.BoolOp(values=[left, right]):
            yield from _swapped(line, left, right, JOINED)
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield node.col_offset, len(line), "pass"
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield _negated(line, test)
        case ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            yield _negated(line, test)
        case ast.Return(value=ast.Constant(value=bool() as value)):
            yield node.col_offset, len(line), f"return {not value}"


def _swapped(line: str, left: ast.expr, right: ast.expr, other: dict[str, str]) -> Iterator[tuple[int, int, str]]:
    start, end = left.end_col_offset or 0, right.col_offset
    operator = line[start:end].strip(" ()")
    if operator in other:
        yield start, end, line[start:end].replace(operator, other[operator])


def _negated(line: str, test: ast.expr) -> tuple[int, int, str]:
    start, end = test.col_offset, test.end_col_offset or 0
    return start, end, f"(not {line[start:end]})"


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True
