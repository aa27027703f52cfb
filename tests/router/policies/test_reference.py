"""docs/concepts/policies.md names every policy and its parameters."""

from pathlib import Path

import pytest

from mesh.wire.control import PrefillMode, PrefillOrder
from router.policies.registry import policies

REFERENCE = (Path(__file__).parents[3] / "docs/concepts/policies.md").read_text()


@pytest.mark.parametrize("name", policies())
def test_every_policy_is_described_with_its_parameters(name):
    table, *_ = REFERENCE.split("## ")
    [row] = [line for line in table.splitlines() if line.startswith(f"| `{name}` |")]
    assert [key for key in policies()[name].parameters.__struct_fields__ if f"`{key}`" not in row] == []


@pytest.mark.parametrize("word", [*PrefillMode, *PrefillOrder])
def test_what_engines_do_with_prompts_is_described(word):
    assert f"| `{word}` |" in REFERENCE
