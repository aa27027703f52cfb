"""How likely drafts are right is learnt quickly, and unlearnt slowly."""

import pytest

from engines.speculation.acceptance import EXPECTED, OWN_FADED, OWN_KEPT, SUREST, Acceptance, level_of


def test_longer_matches_are_of_higher_levels():
    assert [level_of(length) for length in (3, 4, 7, 8, 16, 1000)] == [0, 1, 1, 2, 3, 3]


def test_what_is_expected_counts_before_anything_is_known():
    assert Acceptance(OWN_KEPT, OWN_FADED).chance(1, 0.5, 2.0) == 0.5


@pytest.mark.parametrize(("num_accepted", "is_likely"), [(4, True), (0, False)])
def test_a_few_drafts_tell(num_accepted: int, *, is_likely: bool):
    one = Acceptance(OWN_KEPT, OWN_FADED)
    for _ in range(4):
        one.checked(1, 4, num_accepted)
    assert (one.chance(1, EXPECTED[1], 2.0) > 0.75) == is_likely
    assert (one.chance(1, EXPECTED[1], 2.0) < 0.25) != is_likely
    assert one.chance(0, 0.3, 2.0) == 0.3  # of another level


def test_nothing_is_certain():
    one = Acceptance(OWN_KEPT, OWN_FADED)
    for _ in range(100):
        one.checked(0, 7, 7)
    assert one.chance(0, 0.9, 2.0) == SUREST


def test_what_failed_is_tried_again_after_a_while():
    one = Acceptance(OWN_KEPT, OWN_FADED)
    for _ in range(20):
        one.checked(0, 3, 0)
    low = one.chance(0, 0.5, 2.0)
    for _ in range(100):
        one.fade(0)
    assert low < 0.15
    assert one.chance(0, 0.5, 2.0) > 0.3
