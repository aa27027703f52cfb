"""Rewrites the assertions of all test files on all cores, before workers start that would each rewrite all of them."""

import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_ahead(config: pytest.Config, folder: Path) -> None:
    """Write what pytest keeps of each test file in a folder, where it is missing or old."""
    stale = [path for path in sorted(folder.rglob("test_*.py")) if rewrite._read_pyc(path, _kept(path)) is None]
    if not stale:
        return
    num_cores = os.cpu_count() or 1
    children = [_in_child(config, stale[index::num_cores]) for index in range(num_cores)]
    for child in children:
        os.waitpid(child, 0)


def _in_child(config: pytest.Config, paths: list[Path]) -> int:
    """The process that does it. What fails there, workers do again, and say."""
    child = os.fork()
    if child == 0:
        try:
            for path in paths:
                _rewrite(config, path)
        finally:
            os._exit(0)
    return child


def _rewrite(config: pytest.Config, path: Path) -> None:
    source, code = rewrite._rewrite_test(path, config)
    kept = _kept(path)
    kept.parent.mkdir(exist_ok=True)
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)


def _kept(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
