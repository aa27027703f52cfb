"""At a slice's end: who waits how long if a request is kept, moved or offloaded."""

from math import inf
from random import Random

import pytest

from engines.scheduling.slices.ends import End, EndedSlice, EngineOutlook, Fate, Rival, There, ends
from tests.seeds import each_seed

REQUEST = EndedSlice(held=20, growth=8, left_tokens=100, slack_s=5.0, tpot_s=0.05, copy_s=0.02)
RIVAL = Rival(need=30, left_s=2.0, slack_s=1.0)
HERE = EngineOutlook(room=10, has_place=True, step_s=0.03, end_s=0.5, end_blocks=20, can_offload=True)


def best(ended=REQUEST, rival=None, here=HERE, others=()):
    return ends(ended, rival, here, others)[0]


def test_with_room_and_nobody_waiting_it_stays():
    assert best() == End(0.0, 0.0, Fate.KEEP)


def test_without_room_it_does_not_stay():
    crowded = HERE._replace(room=7)
    assert best(here=crowded).fate is Fate.OFFLOAD
    assert {end.fate for end in ends(REQUEST, None, crowded)} == {Fate.OFFLOAD}
    assert ends(REQUEST, None, crowded._replace(can_offload=False)) == []


def test_it_gives_way_to_who_would_be_late_if_it_can_afford_to():
    hasty = RIVAL._replace(slack_s=0.1)
    assert best(rival=hasty).fate is Fate.OFFLOAD
    assert best(REQUEST._replace(slack_s=-3.0, tpot_s=0.03), hasty).fate is Fate.KEEP, "it would be late itself"


def test_it_gives_way_to_nobody_who_would_begin_no_sooner():
    huge = RIVAL._replace(need=500, slack_s=0.1)
    assert best(rival=huge, here=HERE._replace(end_blocks=1.0)).fate is Fate.KEEP


def test_a_rival_without_a_place_waits_for_an_end():
    small = RIVAL._replace(need=1, slack_s=0.1)
    assert best(rival=small, here=HERE._replace(has_place=False)).fate is Fate.OFFLOAD
    assert best(rival=small).fate is Fate.KEEP


def test_it_moves_where_it_need_not_wait():
    there = There("other", pace_s=0.03, move_s=0.04)
    crowded = HERE._replace(room=7)
    assert (best(here=crowded, others=[there]).fate, best(here=crowded, others=[there]).to) == (Fate.MOVE, "other")
    slow = there._replace(pace_s=0.2)
    assert best(here=crowded, others=[slow]).fate is Fate.OFFLOAD, "it would break its promise there"
    assert best(here=crowded, others=[slow, there]).to == "other"


def test_who_runs_alone_is_not_waited_for():
    alone = HERE._replace(room=7, end_s=inf, end_blocks=0.0)
    assert best(here=alone).fate is Fate.OFFLOAD
    assert best(rival=RIVAL, here=alone._replace(room=10)).delay_s < inf


def test_what_is_late_shows_both():
    kept = next(end for end in ends(REQUEST._replace(slack_s=-1.0, tpot_s=0.03), RIVAL, HERE) if end.fate is Fate.KEEP)
    waits_s = 0.5 * (30 - (10 - 8)) / 20
    assert kept.late_s == pytest.approx(1.0 + max(0.0, waits_s - 1.0))
    assert kept.delay_s == pytest.approx(waits_s)


@each_seed(range(200))
def test_the_first_is_the_best_and_none_keeps_a_request_beyond_the_room(seed):
    dice = Random(seed)
    ended = EndedSlice(
        dice.randint(1, 60), dice.randint(0, 9), dice.uniform(1, 500), dice.uniform(-2, 9), 0.05, dice.uniform(0, 0.1)
    )
    rival = Rival(dice.randint(1, 90), dice.uniform(0.1, 20), dice.uniform(-2, 9)) if dice.random() < 0.8 else None
    here = EngineOutlook(
        dice.randint(0, 40),
        dice.random() < 0.8,
        dice.uniform(0.01, 0.1),
        dice.choice([inf, dice.uniform(0.01, 3)]),
        dice.choice([0.0, dice.uniform(1, 60)]),
        can_offload=True,
    )
    others = [There(f"e{n}", dice.uniform(0.01, 0.1), dice.uniform(0, 2)) for n in range(dice.randint(0, 3))]
    found = ends(ended, rival, here, others)
    assert found[0].late_s == min(end.late_s for end in found)
    assert (Fate.KEEP in {end.fate for end in found}) == (ended.growth <= here.room)
    assert all(end.late_s >= 0 and end.delay_s >= 0 for end in found)
