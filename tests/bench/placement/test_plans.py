"""Plans that a daemon changes under a load that shifts: small."""

from bench.placement.plans import BESIDE, MOVING, REGROUPING, REGROUPS, SWAPS, run


def test_swaps_carry_out_what_loading_beside_cannot():
    swaps, beside = (run(MOVING, contender, 0, 40.0) for contender in (SWAPS, BESIDE))
    assert (swaps.num_lost, beside.num_lost) == (0, 0)
    assert swaps.num_plans >= 1
    assert beside.num_plans == 0
    assert swaps.kept > beside.kept


def test_devices_follow_the_load_and_no_request_is_lost():
    found = run(REGROUPING, REGROUPS, 0, 20.0)
    assert (found.num_lost, found.num_plans >= 1, found.num_changes >= 2) == (0, True, True)
