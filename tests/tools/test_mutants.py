"""Small defects of a module: each is one line that still compiles, inside a function."""

import pytest

from tests.tools.mutants import Mutant, mutants

SOURCE = """\
LIMIT = 3 + 4


def first(a, b):
    log.info(a < b)
    if a.is_ready:
        return a
    {line}
"""


def changed(line: str) -> list[str]:
    found = mutants("a.py", SOURCE.format(line=line))
    return [mutant.after.strip() for mutant in found if mutant.before.strip() == line]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("return a < b", ["return a <= b"]),
        ("return a is not b", ["return a is b"]),
        ("return a - (b)", ["return a + (b)"]),
        ("return a and b", ["return a or b"]),
        ("return a if b else 0", ["return a if (not b) else 0"]),
        ("return True", ["return False"]),
        ("a.append(b)", ["pass"]),
        ("a += b - 1", ["a += b + 1", "pass"]),
        ("return a < b < 3", []),
        ('return "<" in a', ['return "<" not in a']),
        ("log.debug(a - b)", []),
    ],
)
def test_a_line_is_changed_in_each_way_that_it_can_be(line: str, instead: list[str]):
    assert changed(line) == instead


def test_only_functions_are_changed():
    found = mutants("a.py", SOURCE.format(line="return b"))
    assert [(mutant.line, mutant.after) for mutant in found] == [(6, "    if (not a.is_ready):")]


def test_a_mutant_is_the_module_with_one_line_changed():
    assert Mutant("a.py", 2, "b", "c").apply("a\nb\nb\n") == "a\nc\nb\n"
