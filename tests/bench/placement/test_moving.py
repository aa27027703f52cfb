"""Services of which an engine holds one move among engines where weights may be staged, and nowhere else."""

from bench.placement.moving import BESIDE, SWAPS, run


def test_swaps_carry_out_what_loading_beside_cannot():
    swaps, beside = (run(contender, 0, 40.0) for contender in (SWAPS, BESIDE))
    assert (swaps.num_lost, beside.num_lost) == (0, 0)
    assert swaps.num_plans >= 1
    assert beside.num_plans == 0
    assert swaps.kept > beside.kept
