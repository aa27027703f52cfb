"""Files that are there whole, or as they were before."""

import os
from pathlib import Path

import pytest

from mesh.process import whole_file
from mesh.process.whole_file import write_whole


def test_it_takes_the_place_of_what_was_there(tmp_path: Path):
    path = tmp_path / "a.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777, os.listdir(tmp_path)) == (b"two", 0o600, ["a.json"])


def test_what_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.json"
    write_whole(path, b"one")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_file.os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"two")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"one", ["a.json"])
