"""The bench of devices that change hands: small."""

from bench.placement.regrouping import REGROUPS, run


def test_devices_follow_the_load_and_no_request_is_lost():
    found = run(REGROUPS, 0, 40.0)
    assert (found.num_lost, found.num_plans >= 1, found.num_regroupings >= 2) == (0, True, True)
