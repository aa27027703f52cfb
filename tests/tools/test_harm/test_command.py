"""The command's arguments, its lines, its table and its JSON."""

import argparse
import json

import pytest

from bench.harness.files import write_json
from mesh.errors import EXIT_CONFIGURATION
from tests.tools.harm.__main__ import PROGRAMMES, main, parse
from tests.tools.harm.testimony import Honest
from tests.tools.harm.verdict import Row, document, print_all

SCENARIO = Row(
    name="kill-decode",
    family="processes",
    took_s=3.0,
    honest=Honest(requests=3, failed=1, gap_s=1.25, problems=["r1: gone"]),
    notes={"kills": 2},
)
ATTACK = Row(
    name="url",
    family="http",
    ends={"cut": 2},
    honest=Honest(problems=["chat: late"]),
    grown={"gateway": 5 * 2**20},
    took_s=3.0,
)


def planned(*arguments: str) -> list[str]:
    options: argparse.Namespace = parse(arguments)
    plan = PROGRAMMES[options.kind].plan(options)
    return [one[0].name for one in plan]


@pytest.mark.parametrize("kind", PROGRAMMES)
def test_every_name_is_one_and_each_class_is_known(kind):
    harms = PROGRAMMES[kind].HARMS
    assert len({one.name for one in harms}) == len(harms)
    assert {one.name for one in harms}.isdisjoint(one.family for one in harms)
    assert planned(kind, "--only", harms[0].family)[0] == harms[0].name


def test_scenarios_come_in_the_order_of_their_meshes():
    assert planned("chaos", "--only", "lose-any", "kill-decode") == ["kill-decode", "lose-any"]
    assert 0 < len(planned("chaos", "--short")) < len(planned("chaos"))


@pytest.mark.parametrize("kind", PROGRAMMES)
def test_an_unknown_name_is_one_line(kind, capsys):
    assert main([kind, "--only", "boom"]) == EXIT_CONFIGURATION
    assert capsys.readouterr().err == "nothing is called 'boom'; --list says what there is\n"


@pytest.mark.parametrize("kind", PROGRAMMES)
def test_list_names_them_all(kind, capsys):
    assert main([kind, "--list"]) == 0
    told = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert told == [one.name for one in PROGRAMMES[kind].HARMS]


def test_a_row_says_what_went_wrong(capsys):
    assert SCENARIO.lines()[1:] == ["  kills 2", "  ! honest clients failed: 1, r1: gone (1)"]
    assert ATTACK.lines() == [
        "  FAIL: class http, requests 0, failed 0, wrong 0, refused 0, left 0, gap s 0.00, answers 2 cut,"
        " grew MiB 5 (gateway), kept MiB 0, restarts 0 (3 s)",
        "  ! honest clients failed: 1, chat: late (1)",
    ]
    assert Row(name="disk", family="files", impossible="takes root").lines()[1:] == ["  not here: takes root"]
    print_all([SCENARIO], 160)
    headings = next(line for line in capsys.readouterr().out.splitlines() if "name" in line)
    assert [heading.strip() for heading in headings.split("\u2503")[1:-1]][-2:] == ["gap s", "result"]


def test_rows_as_json(tmp_path):
    write_json(tmp_path / "rows.json", document([SCENARIO, ATTACK], {"seed": 1}))
    whole = json.loads((tmp_path / "rows.json").read_text())
    scenario, attack = whole["rows"]
    assert (whole["settings"], scenario["passed"], attack["passed"]) == ({"seed": 1}, False, False)
    assert (scenario["honest"]["failed"], scenario["notes"], attack["grown"]) == (1, {"kills": 2}, ATTACK.grown)
