"""Tests write to a cache of their own: the user's holds what the user prepared, and the default model."""

from pathlib import Path

from engines.models.cache import Cache


def test_tests_have_a_cache_of_their_own():
    root = Cache.of_user().root
    assert root.name == "cache-of-tests"
    assert Path.home() / ".cache" not in root.parents
    assert not (root / "profiles").is_symlink()


def test_the_default_model_is_shared():
    entries = list((Cache.of_user().root / "models").glob("SmolLM2*"))
    assert [entry.is_symlink() for entry in entries] == [True]
