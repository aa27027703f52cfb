"""docs/reference/refused.md lists what `mesh check` refuses together, and nothing else."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = tomllib.loads((ROOT / "tests/mesh/topology/faults.toml").read_text())["case"]
PAGE = (ROOT / "docs/reference/refused.md").read_text()


def rows() -> set[str]:
    table = PAGE.partition("| together | why | instead |\n")[2].partition("\n\n")[0]
    return {line.strip("|").split("|")[0].strip() for line in table.splitlines()[1:]}


def test_each_row_is_refused_and_each_such_refusal_has_its_row():
    """What `faults.toml` says is refused by `tests/mesh/topology/test_parse.py`."""
    assert rows() == {case["together"] for case in CASES if "together" in case}


def test_the_list_is_short():
    assert len(rows()) < 5
