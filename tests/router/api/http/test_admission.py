import pytest

from router.api.http.admission import BodyAdmission
from router.generation import Overloaded


def test_only_so_many_enter_at_a_time():
    admission = BodyAdmission(max_entering=2)
    with admission.enter("a"), admission.enter("b"):
        with pytest.raises(Overloaded, match="2 requests are being read") as caught:
            admission.enter("c")
        assert caught.value.retry_after_s > 0
    with admission.enter("c"), admission.enter("c"):
        pass


def test_one_peer_takes_its_share_of_places_and_bytes():
    admission = BodyAdmission(max_entering=4, max_entering_of_one=2, max_bytes=100, max_bytes_of_one=60)
    with admission.enter("flood") as first, admission.enter("flood"):
        with pytest.raises(Overloaded):
            admission.enter("flood")
        first.hold(60)
        with pytest.raises(Overloaded):
            first.hold(1)
        with admission.enter("honest") as honest:
            honest.hold(40)
            with pytest.raises(Overloaded, match="100 bytes"):
                honest.hold(1)


def test_two_of_the_largest_bodies_fit_at_once():
    for size in (1, 4 << 20, 512 << 20):
        with BodyAdmission.of_bodies(size).enter("a") as entry:
            entry.hold(2 * size)


def test_who_leaves_holds_nothing_however_it_went():
    admission = BodyAdmission(max_entering=1, max_bytes=10, max_bytes_of_one=10)
    for _ in range(3):
        entry = admission.enter("a")
        with entry:
            entry.hold(10)
            with pytest.raises(Overloaded):
                entry.hold(1)
    assert repr(admission) == "<BodyAdmission 0 entering with 0 bytes>"
    assert not admission._bytes_of
    assert not admission._entering_of
