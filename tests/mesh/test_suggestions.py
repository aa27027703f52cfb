"""A misspelt word is answered with the one that was meant, or with all that there are."""

from mesh.suggestions import closest, one_of, suggestion
from mesh.wire.control import Role


def test_the_closest_word_is_named():
    assert suggestion("prefil", Role) == "did you mean 'prefill'?"
    assert closest("xyz", Role) is None


def test_without_a_close_one_all_are_named():
    assert suggestion("boss", ["b", "c", "a"]) == "use a, b or c"
    assert suggestion("boss", []) == "there is none"
    assert one_of(["a"]) == "a"
