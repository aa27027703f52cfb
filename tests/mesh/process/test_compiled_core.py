import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from mesh.process import compiled_core
from mesh.process.compiled_core import (
    NAMES,
    CompiledFinder,
    build_here,
    builds_in,
    core_in_words,
    files_of,
    is_compiled,
    sources_digest,
    use_compiled,
    user_cache,
)

ENDING = EXTENSION_SUFFIXES[0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mesh" / "deep").mkdir(parents=True)
    (tmp_path / "mesh" / "deep" / "pool.py").write_text("size = 1\n")
    return tmp_path


@pytest.fixture
def build(root: Path) -> Path:
    """Of the sources in ``root``, whose cache it is in."""
    build = builds_in(root) / sources_digest(root)
    (build / "mesh" / "deep").mkdir(parents=True)
    (build / "mesh" / "deep" / "pool_structs.py").write_text("kind = 'struct'\n")
    (build / f"0a__mypyc{ENDING}").touch()
    (build / NAMES).write_text("mesh.deep.pool\nmesh.deep.room")
    return build


def found(root: Path, **environment: str) -> Path | None:
    return build_here({"MESHSERVE_CACHE": str(root), **environment}, root)


def test_a_build_of_these_very_sources_is_found(root: Path, build: Path):
    assert found(root) == build


def test_a_build_of_other_sources_is_left_alone(root: Path, build: Path):
    (root / "mesh" / "deep" / "pool.py").write_text("size = 2\n")
    assert found(root) is None


def test_a_build_that_is_not_whole_is_left_alone(root: Path, build: Path):
    (build / NAMES).unlink()
    assert found(root) is None


def test_nothing_compiled_runs_where_it_is_switched_off(root: Path, build: Path):
    assert found(root, MESHSERVE_COMPILED="0") is None


def test_no_digest_is_worked_out_where_nothing_was_compiled(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiled_core, "sources_digest", None)
    assert found(root) is None


def test_names_are_those_of_compiled_modules_and_what_lies_beside_them(build: Path):
    assert files_of(build) == {
        "0a__mypyc": build / f"0a__mypyc{ENDING}",
        "mesh.deep.pool": build / "mesh" / "deep" / f"pool{ENDING}",
        "mesh.deep.pool_structs": build / "mesh" / "deep" / "pool_structs.py",
        "mesh.deep.room": build / "mesh" / "deep" / f"room{ENDING}",
    }


def test_modules_come_from_the_build_and_others_from_where_they_are(build: Path):
    (build / "mesh" / "deep" / f"pool{ENDING}").touch()
    finder = CompiledFinder(files_of(build))
    spec = finder.find_spec("mesh.deep.pool")
    assert spec is not None
    assert spec.origin == str(build / "mesh" / "deep" / f"pool{ENDING}")
    assert finder.find_spec("mesh.deep.room") is None, "its file is gone"
    assert finder.find_spec("mesh.clock") is None


def test_a_process_tells_what_it_runs(build: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    use_compiled(None)
    assert core_in_words() == "as written"
    use_compiled(build)
    assert core_in_words() == "compiled"


def test_the_users_cache_is_named_or_in_the_home_folder():
    assert user_cache({"MESHSERVE_CACHE": "/big/disk"}) == Path("/big/disk")
    assert user_cache({}) == Path.home() / ".cache" / "meshserve"


def test_classes_that_are_compiled_are_told_from_those_that_are_written():
    assert not is_compiled(CompiledFinder)
    assert is_compiled(zip)  # written in C, as mypyc writes
