"""The catalogue and the order in which it runs."""

from bench.harm.__main__ import parse
from bench.harm.harm import PLAIN
from bench.harm.siege.attack import TWO_HOSTS, Attack
from bench.harm.siege.campaign import AT_ONCE, HARMS, mixtures, plan


async def nothing(_):
    return []


def test_every_class_is_in_the_short_form_which_needs_one_mesh():
    short = [one for one in HARMS if one.in_short]
    assert {one.family for one in short} == {one.family for one in HARMS}
    assert {one.mesh for one in short} == {PLAIN}


def test_mixtures_hang_on_the_seed_and_leave_out_what_runs_alone():
    alone = Attack("files", "alone", nothing, mixes=False)
    far = Attack("wire", "far", nothing, mesh=TWO_HOSTS)
    attacks = [alone, far, *(Attack("http", f"a{n}", nothing) for n in range(9))]
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
