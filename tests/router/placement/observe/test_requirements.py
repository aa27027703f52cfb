import pytest

from router.placement.observe.requirements import GIB, Catalogue, PlacementError, check_fits
from tests.router.placement.worlds import catalogue, cluster, footprint


def test_weights_and_a_longest_request_of_each_must_fit_together():
    services = catalogue({"a": 35.0, "b": 35.0, "c": 36.5})
    assert services.fits(["a", "b"], 1)  # 35 + 1 + 35 + 1 of 72
    assert not services.fits(["a", "c"], 1)
    assert services.missing_bytes(["a", "c"], 1) == 1.5 * GIB
    assert services.fits(["a", "c"], 2)


def test_no_more_services_share_a_group_than_may():
    assert not catalogue({"a": 1.0, "b": 1.0, "c": 1.0}).fits(["a", "b", "c"], 8)
    assert catalogue({"a": 1.0, "b": 1.0, "c": 1.0}, max_sharing=3).fits(["a", "b", "c"], 8)


def test_a_service_fits_only_groups_that_it_has_a_profile_for():
    only_four = Catalogue({"a": {4: footprint("a", 1.0, 4)}}, 72 * GIB)
    assert not only_four.fits(["a"], 8)
    assert only_four.least_devices("a", 8) == 4
    assert only_four.least_devices("a", 2) is None


def test_what_fits_nowhere_is_named_with_what_it_lacks():
    services = catalogue({"small": 13.0, "large": 160.0, "huge": 300.0})
    with pytest.raises(PlacementError) as caught:
        check_fits(services, cluster(2, 2))
    largest = "the largest group that it has a profile for, 2 devices, holds 144.0 GiB"
    assert str(caught.value).splitlines() == [
        f"huge: weights and its longest request take 301.0 GiB; {largest}: 157.0 GiB too little",
        f"large: weights and its longest request take 161.0 GiB; {largest}: 17.0 GiB too little",
    ]
    check_fits(services, cluster(8))


def test_what_has_no_profile_small_enough_is_named_with_those_that_it_has():
    only_four = Catalogue({"a": {4: footprint("a", 1.0, 4)}}, 72 * GIB)
    with pytest.raises(PlacementError, match="a: has profiles for 4 devices; the largest group has 2"):
        check_fits(only_four, cluster(2))
