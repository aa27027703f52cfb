import pytest

from router.api.door import Door
from router.generation import Overloaded


def test_only_so_many_enter_at_a_time():
    door = Door(max_entering=2)
    with (
        door,
        door,
        pytest.raises(Overloaded, match="2 requests are being read") as caught,
        door,
    ):
        raise AssertionError("a third one entered")
    assert caught.value.retry_after_s > 0
    with door, door:
        pass


def test_who_fails_on_the_way_in_has_left():
    door = Door(max_entering=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="not JSON"), door:
            raise ValueError("not JSON")
