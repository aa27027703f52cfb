"""Statuses and views are filled by position, as names take longer: each value is in the place of its field."""

import ast
import inspect
from types import ModuleType

import msgspec
import pytest

import engines.status
import router.view.engine_view
from mesh.wire.status import EngineStatus
from router.view.engine_view import EngineView

STEM = 4  # letters of a word by which it is known: "preempted" and "preemptions" are one
COMMON = {"num", "tota", "of", "s"}
OTHER_NAMES = {"num_completed": "migrations_total", "id_": "id", "pending": "prefills", "joining": "foreseen"}
WORKED_OUT: dict[type, set[str]] = {  # of what has other names
    EngineStatus: {"min_slack_s", "num_reserved", "blocks_not_stored_total", "prefix_news"},
    EngineView: {"num_requests", "reserved_s", "joining", "coming"},
}


def words(name: str) -> set[str]:
    return {word[:STEM] for word in OTHER_NAMES.get(name, name).strip("_").split("_")} - COMMON


def names_in(value: ast.expr) -> set[str]:
    """All that a value is made of, by the last part of each name."""
    attributes = {node.attr for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


@pytest.mark.parametrize(
    ("module", "kind", "names"),
    [
        (engines.status, EngineStatus, [field.name for field in msgspec.structs.fields(EngineStatus)]),
        (router.view.engine_view, EngineView, list(inspect.signature(EngineView).parameters)),
    ],
)
def test_each_value_is_in_the_place_of_a_field_of_its_name(module: ModuleType, kind: type, names: list[str]):
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    [call] = [one for one in calls if getattr(one.func, "id", "") == kind.__name__ and len(one.args) > 1]
    named = [(name, names_in(value)) for name, value in zip(names, call.args, strict=False) if names_in(value)]
    assert len(named) > 20
    other = {name for name, found in named if not words(name) & {word for one in found for word in words(one)}}
    assert other == WORKED_OUT[kind]
