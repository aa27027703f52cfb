"""What the runner asks its workers by name is there: vLLM itself finds methods only when they are called."""

import ast
from pathlib import Path

from engines.vllm_engine import runner


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
