"""What the runner asks its workers by name is there: vLLM itself finds methods only when they are called."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.vllm_engine import runner
from engines.vllm_engine.runner import RunnerSettings, check_one_kind
from mesh.errors import UserError

SETTINGS = RunnerSettings("/models/some", "float32", 32, 256, 512, 8, {}, layers=2, layer_bytes=1024)


def test_workers_have_each_method_that_is_called_by_name():
    source = Path(runner.__file__)
    assert _called(ast.parse(source.read_text())) <= _methods(ast.parse((source.parent / "in_pages.py").read_text()))


def _called(tree: ast.Module) -> set[str]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = [node for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr == "collective_rpc"]
    return {ast.literal_eval(node.args[0]) for node in by_name}


def _methods(tree: ast.Module) -> set[str]:
    [worker] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in worker.body if isinstance(node, ast.FunctionDef)]
    return {name for name in functions if not name.startswith("_")}


def group(num_layers: int, num_bytes: int) -> Any:
    names = [f"layers.{number}" for number in range(num_layers)]
    return SimpleNamespace(layer_names=names, kv_cache_spec=SimpleNamespace(page_size_bytes=num_bytes))


def test_layers_that_keep_kv_alike_are_taken():
    check_one_kind([group(2, 1024)], SETTINGS, 1)
    check_one_kind([group(2, 512)], SETTINGS, 2)


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        ([group(1, 1024), group(1, 1024)], "vLLM keeps 2 kinds of KV for it, and engines hand over one"),
        ([group(1, 1024)], "vLLM keeps KV in 1 of 1024 bytes a block, and layers alike would be 2 of 1024"),
        ([group(2, 576)], "vLLM keeps KV in 2 of 576 bytes a block"),
    ],
)
def test_what_engines_cannot_hand_over_is_refused(groups: list[Any], complaint: str):
    with pytest.raises(UserError, match=f"/models/some: {complaint}"):
        check_one_kind(groups, SETTINGS, 1)
