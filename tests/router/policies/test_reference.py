"""What docs/concepts/policies.md says of policies and their parameters is so.

The reference page, which is made from the code, has them all: a new policy needs no row here.
"""

import re
from pathlib import Path

import pytest

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.registry import policies

REFERENCE = (Path(__file__).parents[3] / "docs/concepts/policies.md").read_text()


ROWS = [
    line.split("|")
    for line in REFERENCE.split("## ")[0].splitlines()
    if line.startswith("| `") and "`name`" not in line
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip(" `"))
def test_policies_have_the_parameters_that_the_comparison_tells(row):
    parameters = policies()[row[1].strip(" `")].parameters.__struct_fields__
    assert set(re.findall(r"`(\w+)`", row[4])) == set(parameters)


def test_the_comparison_has_the_policies_of_the_papers():
    assert {"tropical", "llumnix", "packing", "slices", "elastic"} <= {row[1].strip(" `") for row in ROWS}


@pytest.mark.parametrize("word", [*PrefillMode, *PrefillOrder])
def test_what_engines_do_with_prompts_is_described(word):
    assert f"| `{word}` |" in REFERENCE
