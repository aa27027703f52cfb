"""The catalogue, the order in which it runs, and the command."""

import json
from functools import partial

import pytest

import bench.siege.attacks  # noqa: F401  (fills the catalogue)
from bench.harness.files import write_json
from bench.siege.__main__ import choose, main, orders_of, parse
from bench.siege.attack import CATALOGUE, ONE_HOST, TWO_HOSTS, Attack, Family
from bench.siege.campaign import AT_ONCE, Orders, mixtures, ordered, plan
from bench.siege.report import document, line, markdown, remarks
from bench.siege.verdict import Row
from mesh.errors import EXIT_CONFIGURATION, UserError

ROW = Row("url", "http", ends={"cut": 2}, failures=["chat: late"], grown={"gateway": 5 * 2**20}, took_s=3.0)


async def nothing(_):
    return []


orders = partial(Orders, seed=1, rounds=3, is_fast=True)


def test_every_class_is_in_the_short_form_too():
    assert {one.family for one in CATALOGUE.values()} == set(Family)
    assert {one.family for one in choose(None, is_fast=True)} == set(Family)
    assert len(CATALOGUE) >= 60


def test_the_short_form_needs_one_mesh():
    assert {one.wall for one in choose(None, is_fast=True)} == {ONE_HOST}


def test_attacks_are_chosen_by_name_or_class():
    chosen = choose(["stops", "url-12-mib"], is_fast=True)
    assert {one.family for one in chosen} == {Family.STOPS, Family.HTTP}
    assert [one.name for one in chosen][-1] == "url-12-mib"


def test_an_unknown_name_is_one_line(capsys):
    with pytest.raises(UserError, match="no attack or class 'boom'"):
        choose(["boom"], is_fast=False)
    assert main(["--only", "boom"]) == EXIT_CONFIGURATION
    assert capsys.readouterr().err.count("\n") == 1


def test_list_names_them_all(capsys):
    assert main(["--list"]) == 0
    assert [text.split()[1] for text in capsys.readouterr().out.splitlines()] == [
        one.name for one in ordered(list(CATALOGUE.values()))
    ]


def test_mixtures_hang_on_the_seed_and_leave_out_what_runs_alone():
    alone = Attack("alone", Family.FILES, nothing, mixes=False)
    far = Attack("far", Family.WIRE, nothing, wall=TWO_HOSTS)
    attacks = [alone, far, *(Attack(f"a{n}", Family.HTTP, nothing) for n in range(9))]
    drawn = mixtures(orders(attacks))
    assert drawn == mixtures(orders(attacks))
    assert [len(one) for one in drawn] == [AT_ONCE] * 3
    assert not {"alone", "far"} & {one.name for mixture in drawn for one in mixture}
    assert drawn != mixtures(orders(attacks, seed=2))


def test_meshes_are_besieged_one_after_the_other():
    attacks = [Attack("far", Family.WIRE, nothing, wall=TWO_HOSTS), Attack("near", Family.WIRE, nothing)]
    assert [[one.name for one in together] for together in plan(orders(attacks))] == [["near"], ["far"]]


def test_mixtures_run_only_with_the_whole_catalogue():
    assert orders_of(parse([])).rounds > 1
    assert orders_of(parse(["--fast"])).rounds == 1
    assert orders_of(parse(["--only", "stops"])).rounds == 0
    assert orders_of(parse(["--only", "stops", "--rounds", "2"])).rounds == 2


def test_a_row_says_what_went_wrong(tmp_path):
    assert line(ROW) == ("  FAIL: 2 cut; witness 1 failed, gap 0.00 s (calm 0.00); grew 5 (gateway), kept - MiB; 3 s")
    assert remarks(ROW) == ["  ! the witness failed: 1, chat: late (1)"]
    assert markdown([ROW]).splitlines()[-1] == "| url | http | 2 cut | 1 | 0.00 | 0.00 | 5 (gateway) | - | 0 | FAIL |"
    write_json(tmp_path / "rows.json", document([ROW], {"seed": 1}))
    whole = json.loads((tmp_path / "rows.json").read_text())
    assert (whole["settings"], whole["rows"][0]["passed"]) == ({"seed": 1}, False)
    assert remarks(Row("disk", "files", impossible="takes root")) == ["  takes root"]
