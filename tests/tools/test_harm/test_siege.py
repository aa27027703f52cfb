"""The catalogue and the order in which it runs."""

from tests.tools.harm.__main__ import parse
from tests.tools.harm.attacks.ground import Answer
from tests.tools.harm.harm import PLAIN, TURNED_AWAY, End, Harm
from tests.tools.harm.meshes import TWO_HOSTS
from tests.tools.harm.siege import AT_ONCE, HARMS, mixtures, plan, restarted, wrong_of


async def nothing(_):
    return []


def test_every_class_is_in_the_short_form_which_needs_one_mesh():
    short = [one for one in HARMS if one.in_short]
    assert {one.family for one in short} == {one.family for one in HARMS}
    assert {one.mesh for one in short} == {PLAIN}


def test_mixtures_hang_on_the_seed_and_leave_out_what_runs_alone():
    alone = Harm("files", "alone", nothing, mixes=False)
    far = Harm("wire", "far", nothing, mesh=TWO_HOSTS)
    attacks = [alone, far, *(Harm("http", f"a{n}", nothing) for n in range(9))]
    drawn = mixtures(attacks, 1, 3)
    assert drawn == mixtures(attacks, 1, 3) != mixtures(attacks, 2, 3)
    assert [len(one) for one in drawn] == [AT_ONCE] * 3
    assert not {"alone", "far"} & {one.name for mixture in drawn for one in mixture}


def test_meshes_are_besieged_one_after_the_other_mixtures_on_the_first():
    together = plan(parse(["siege", "--seed", "3"]))
    meshes = [PLAIN if len(one) > 1 else one[0].mesh for one in together]
    assert meshes == sorted(meshes, key=list(dict.fromkeys(meshes)).index)
    assert sorted(one[0].name for one in together if len(one) == 1) == sorted(one.name for one in HARMS)


def test_mixtures_run_only_with_the_whole_catalogue():
    counts = [
        sum(len(one) > 1 for one in plan(parse(["siege", *arguments])))
        for arguments in ((), ("--short",), ("--only", "stops"), ("--only", "stops", "--rounds", "2"))
    ]
    assert counts == [12, 1, 0, 2]


def test_answers_are_right_by_what_the_attack_allows():
    answers = [Answer(End.SERVED, 200), Answer(End.REFUSED, 400), Answer(End.FAILED, 500, "boom"), Answer(End.HELD)]
    assert wrong_of(Harm("http", "x", nothing), answers) == ["failed 500 boom", "held"]
    strict = Harm("http", "x", nothing, right=TURNED_AWAY)
    assert wrong_of(strict, answers) == ["served 200", "failed 500 boom", "held"]


def test_another_process_or_none_by_a_name_is_a_restart():
    before = {"decode": 1, "prefill": 2, "gateway": 3}
    assert restarted(before, dict(before), frozenset()) == []
    assert restarted(before, {"decode": 1, "prefill": 9}, frozenset()) == ["prefill", "gateway"]
    assert restarted(before, {"decode": 7, "prefill": 2, "gateway": 3}, frozenset({"decode"})) == []
