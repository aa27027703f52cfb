import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from mesh.access.key_file import change_keys, read_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.errors import UserError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def add(path, name):
    key, _ = make_key(name, KeyLimits(requests_per_minute=5), 1000.0)
    change_keys(path, lambda keys: (*keys, key))
    return key


def test_what_is_written_is_read(path):
    keys = add(path, "alice"), add(path, "bob")
    assert read_keys(path) == keys
    change_keys(path, lambda found: found[1:])
    assert read_keys(path) == keys[1:]


def test_the_file_is_its_owners_alone_whatever_the_umask(path):
    before = os.umask(0)
    try:
        add(path, "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_can_read_is_refused(path):
    add(path, "alice")
    path.chmod(0o640)
    with pytest.raises(UserError, match="others can read the access keys; run `chmod 600"):
        read_keys(path)


def test_a_change_that_fails_changes_nothing(path):
    key = add(path, "alice")

    def fail(keys):
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        change_keys(path, fail)
    assert read_keys(path) == (key,)
    assert [file.name for file in path.parent.iterdir()] == ["keys.json"]


def test_changes_at_once_are_all_made(path):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: add(path, f"k{number}"), range(16)))
    assert {key.name for key in read_keys(path)} == {f"k{number}" for number in range(16)}


def test_a_link_stays_one(path, tmp_path):
    target = tmp_path / "kept" / "real.json"
    target.parent.mkdir()
    path.symlink_to(target)
    add(path, "alice")
    assert path.is_symlink()
    assert len(read_keys(target)) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": 2}', '{"format": 1, "keys": [{}]}', '{"format": 1, "more": 1}', "[" * 100_000, "\xff"],
)
def test_a_broken_file_is_told(path, text):
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(UserError, match=r"keys\.json: is no file of access keys"):
        read_keys(path)


def test_two_keys_of_one_name_are_told(path):
    add(path, "alice")
    add(path, "alice")
    with pytest.raises(UserError, match="two access keys have one name or id"):
        read_keys(path)


def test_no_file_is_no_broken_one(path):
    with pytest.raises(FileNotFoundError):
        read_keys(path)


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be written: No such file"):
        add(tmp_path / "no" / "keys.json", "alice")
