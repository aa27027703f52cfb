"""The command's arguments, its table and its JSON."""

import json

import pytest

from bench.chaos.__main__ import choose, main, ordered
from bench.chaos.report import document, markdown, remarks
from bench.chaos.scenarios.registry import SCENARIOS
from bench.chaos.verdict import Row, Tally
from bench.harness.files import write_json
from mesh.errors import UserError

ROW = Row(
    "kill-decode", "SIGKILL", Tally(requests=3, failed=1, worst_gap_s=1.25, problems=["r1: gone"]), notes={"kills": 2}
)


def test_scenarios_come_in_the_order_of_their_meshes():
    names = [one.name for one in choose(["lose-nth", "kill-decode", "kill-decode"], is_quick=False)]
    assert names == ["kill-decode", "lose-nth"]
    assert len(choose(None, is_quick=False)) == len(SCENARIOS)
    short = choose(None, is_quick=True)
    assert short
    assert all(one.in_short for one in short)


def test_an_unknown_scenario_is_one_line(capsys):
    with pytest.raises(UserError, match="no scenario 'boom'; there are healthy, "):
        choose(["boom"], is_quick=False)
    assert main(["--scenario", "boom"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_list_names_them_all(capsys):
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in ordered()]


def test_a_row_says_what_went_wrong():
    assert remarks(ROW) == ["  kills 2", "  ! r1: gone"]
    assert markdown([ROW]).splitlines()[-1] == "| kill-decode | 3 | 1 | 0 | 0 | 0 | 1.25 | - | - | FAIL |"


def test_rows_as_json(tmp_path):
    write_json(tmp_path / "rows.json", document([ROW], {"seed": 1}))
    whole = json.loads((tmp_path / "rows.json").read_text())
    assert whole["settings"] == {"seed": 1}
    [row] = whole["rows"]
    assert (row["scenario"], row["passed"], row["tally"]["failed"], row["notes"]) == (
        "kill-decode",
        False,
        1,
        {"kills": 2},
    )
