"""The bench of the papers' own grounds, small: fleets are the papers', and rows say who is better."""

import json

import pytest

from bench.combined.contenders import ALL_ON, CONTENDERS, UNION
from bench.grounds import __main__ as command
from bench.grounds.settings import GROUNDS, OWN, OWN_NAME
from mesh.wire.control import Role


@pytest.mark.parametrize("name", GROUNDS)
def test_a_fleet_is_used_as_its_contender_uses_engines(name):
    ground = GROUNDS[name]
    mixed, split = (ground.fleet(one, 40, 0) for one in (CONTENDERS["join_shortest_queue"], UNION))
    assert {engine.role for engine in mixed.topology.engines} == {Role.MULTIPLEX}
    roles = [engine.role for engine in split.topology.engines]
    assert 0 < roles.count(Role.PREFILL) <= len(roles) // 2
    assert list(mixed.requests) == list(split.requests)
    assert len(mixed.requests) == 40


def test_a_papers_own_contender_has_its_own_engines():
    own, other = (GROUNDS["scls"].fleet(one, 10, 0).topology for one in (OWN["scls"], UNION))
    assert {engine.scheduling.is_static for engine in own.engines} == {True}
    assert {engine.scheduling.is_static for engine in other.engines} == {False}


def test_rows_say_how_many_times_as_good_everything_is(tmp_path, capsys):
    names = [ALL_ON, "join_shortest_queue"]
    words = ["--ground", "seallm", "aladdin", "--only", *names, "--seeds", "1", "--requests", "12", "--jobs", "1"]
    command.main([*words, "--out", str(tmp_path)])
    cases = [row["case"] for row in json.loads((tmp_path / "grounds.json").read_text())["results"]]
    for ground, own in (("seallm", names), ("aladdin", [*names, OWN_NAME])):
        assert [case["contender"] for case in cases if case["ground"] == ground] == own
    printed = capsys.readouterr().out
    assert "seallm: normalised latency (less is better)" in printed
    assert "aladdin: kept, % (more is better)" in printed


def test_the_best_is_first_and_those_that_are_better_are_marked():
    values = {ALL_ON: [2.0, 2.2], "worse": [3.0, 3.1], "better": [1.0, 1.1]}
    rows = {row[0]: row[2] for row in command._rows("seallm", values)}
    assert list(rows) == ["better", ALL_ON, "worse"]
    assert rows[ALL_ON] == ""
    assert rows["better"].endswith("*")
    assert not rows["worse"].endswith("*")
