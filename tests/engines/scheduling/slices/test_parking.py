from random import Random

import pytest

from engines.scheduling.slices.parking import COPY_BYTES_PER_S, Parking


class Request:
    id = "r"


@pytest.mark.parametrize("seed", range(20))
def test_room_is_counted_and_tickets_are_used_once(seed):
    dice, parking, parked, seen = Random(seed), Parking(100), {}, set()
    for _ in range(200):
        size = dice.randint(0, 40)
        if dice.random() < 0.6 and parking.can_hold(size):
            request = Request()
            ticket = parking.open(request, size)
            assert ticket not in seen
            seen.add(ticket)
            parked[ticket] = request, size
            assert parking.ticket_of(request) == ticket
        elif parked:
            ticket = dice.choice(sorted(parked))
            assert parking.request(ticket) is parked.pop(ticket)[0]
            parking.close(ticket)
        assert parking.num_bytes == sum(size for _, size in parked.values()) <= 100
        parking.check_invariants()
    with pytest.raises(KeyError):
        parking.ticket_of(Request())


def test_copies_teach_how_long_they_take():
    parking = Parking(100)
    assert parking.copy_s(10**9) == pytest.approx(1e9 / COPY_BYTES_PER_S)
    for _ in range(60):
        parking.copied(10**6, 0.5)
    parking.copied(0, 3.0)
    assert parking.copy_s(2 * 10**6) == pytest.approx(1.0, rel=0.01)
