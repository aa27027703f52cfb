"""Modules that are loaded when they are first looked into."""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.torch_engine.first_import import SHAPE_RULES, deferred

LATER = "number_that_comes_later"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One that can be imported, and says aloud when it is loaded."""
    (tmp_path / f"{LATER}.py").write_text("print('loaded')\nnumber = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield LATER
    sys.modules.pop(LATER, None)


def test_a_deferred_module_is_loaded_once_when_it_is_looked_into(module: str, capsys: pytest.CaptureFixture[str]):
    with deferred(module):
        found = importlib.import_module(module)
    assert inspect.getmodule(deferred) is not found  # looks at the file of every module
    assert not hasattr(found, "__path__")
    assert capsys.readouterr().out == ""
    assert (found.number, found.number) == (7, 7)
    assert capsys.readouterr().out == "loaded\n"
    with pytest.raises(AttributeError):
        found.other  # noqa: B018


def test_others_are_loaded_at_once_and_so_are_all_of_them_later(module: str, capsys: pytest.CaptureFixture[str]):
    with deferred("another_module"):
        importlib.import_module(module)
    assert capsys.readouterr().out == "loaded\n"
    del sys.modules[module]
    with deferred(module):
        pass
    assert importlib.import_module(module).number == 7
    assert capsys.readouterr().out == "loaded\n"


def test_torch_computes_without_its_shape_rules_and_tells_shapes_when_asked():
    code = f"""
import sys
from engines.torch_engine.first_import import import_torch
import_torch()
import torch
rules = sys.modules[{SHAPE_RULES!r}]
assert torch.ones(2, 3).matmul(torch.ones(3, 1)).sum() == 6
assert "meta_mm" not in vars(rules), "the rules are loaded after all: they cost a quarter of each start"
assert tuple(rules.meta_mm(torch.ones(2, 3), torch.ones(3, 1)).shape) == (2, 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
