"""Operators are those whose key in the file says so."""

import os

import pytest

from mesh.access.key_file import change_keys
from mesh.access.keys import UNLIMITED, make_key
from mesh.access.operators import OperatorKeys


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def add(path, name, *, admin, expires=None):
    key, text = make_key(name, UNLIMITED, 0.0, expires, admin=admin)
    change_keys(path, lambda keys: (*keys, key))
    return f"Bearer {text}"


def test_only_living_keys_of_operators_are_admitted(path):
    operator, user = add(path, "operator", admin=True), add(path, "user", admin=False)
    late = add(path, "late", admin=True, expires=1.0)
    keys = OperatorKeys(path)
    assert [keys.admit(shown) for shown in (operator, user, late)] == [True, False, False]
    others = ("", "Basic abc", "Bearer", "Bearer ms-nothing", operator[:-1] + "~")
    assert not any(keys.admit(shown) for shown in others)


def test_a_file_that_changes_is_read_again_and_a_broken_one_admits_nobody(path):
    keys = OperatorKeys(path)
    assert not keys.admit("Bearer ms-000000000000-" + 43 * "x")
    first = add(path, "first", admin=True)
    assert keys.admit(first)
    second = add(path, "second", admin=True)
    assert keys.admit(second)
    path.write_text("{")
    os.utime(path, ns=(1, 1))
    assert not keys.admit(second)
