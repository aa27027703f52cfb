import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mesh.errors import UserError
from mesh.process.compiled_core import ROOT, files_of
from simulation.compiled import build
from simulation.compiled.build import compile_modules, compiled_tree
from simulation.compiled.sources import sources
from tests.seeds import is_night

POOL = "class Pool:\n    __slots__ = ('num',)\n\n    def __init__(self) -> None:\n        self.num = 1\n"


class Builder:
    """Stands in for mypyc."""

    def __init__(self, root: Path) -> None:
        (root / "mesh").mkdir(parents=True)
        (root / "mesh" / "__init__.py").touch()
        (root / "mesh" / "pool.py").write_text(POOL)
        self.root = root
        self.said: list[str] = []
        self.texts: list[str] = []

    def compile(self, folder: Path, paths: Sequence[str]) -> None:
        self.texts += [(folder / path).read_text() for path in paths]

    def tree(self) -> Path:
        return compiled_tree(self.root, ["mesh.pool"], self.root / "builds", self.said.append, self.compile)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_the_same_sources_are_compiled_once(builder: Builder):
    assert builder.tree() == builder.tree()
    assert builder.texts == [sources(POOL, "mesh.pool").compiled]
    assert builder.said == ["compiling 1 modules, once for these sources: a minute or two of CPU"]


def test_other_sources_are_compiled_anew(builder: Builder):
    first = builder.tree()
    (builder.root / "mesh" / "pool.py").write_text(POOL.replace("1", "2"))
    assert builder.tree() != first
    assert len(builder.texts) == 2


def test_old_builds_are_forgotten(builder: Builder):
    for num in range(4):
        (builder.root / "mesh" / "pool.py").write_text(POOL.replace("1", str(num)))
        newest = builder.tree()
    assert newest.exists()
    assert len(list((builder.root / "builds").iterdir())) == build.KEPT_BUILDS


def test_a_build_that_fails_leaves_nothing_and_says_why(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "SETUP", "raise SystemExit('error: no compiler for {paths[0]}')")
    monkeypatch.setattr(builder, "compile", compile_modules)
    with pytest.raises(UserError, match=r"needs mypy, a C compiler.*no compiler for mesh/pool.py"):
        builder.tree()
    assert not list((builder.root / "builds").iterdir())


def test_what_cannot_be_imported_is_thrown_away(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "SETUP", "open({paths[0]!r}, 'w').write('raise OSError(9)')")
    monkeypatch.setattr(builder, "compile", compile_modules)
    with pytest.raises(UserError, match=r"cannot be imported, and is thrown away: OSError: 9"):
        builder.tree()
    assert not list((builder.root / "builds").iterdir())


def test_structs_lie_beside_what_is_compiled(builder: Builder):
    said = "import msgspec\n\nclass Said(msgspec.Struct):\n    num: int\n"
    (builder.root / "mesh" / "pool.py").write_text(said)
    tree = builder.tree()
    assert "class Said(msgspec.Struct)" in (tree / "mesh" / "pool_structs.py").read_text()
    assert builder.texts == ["import msgspec\nfrom mesh.pool_structs import Said\n\n\n"]
    assert set(files_of(tree)) == {"mesh.pool", "mesh.pool_structs"}


@pytest.mark.skipif(not is_night(), reason="compiling takes minutes")
@pytest.mark.timeout(1800)
def test_compiled_engines_decide_the_same_to_the_last_bit_and_compiled_gateways_answer_the_same(tmp_path: Path):
    gateways = ["tests/router/api/openai", "tests/router/api/metrics", "tests/router/servers/test_front.py"]
    tests = ["tests/simulation/test_golden.py", *gateways]
    command = [sys.executable, "-m", "simulation.compiled", "pytest", "-q", "-o", "pythonpath=", *tests]
    environment = os.environ | {"MESHSERVE_CACHE": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
