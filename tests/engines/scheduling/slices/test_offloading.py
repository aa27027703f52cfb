from random import Random

import pytest

from engines.scheduling.slices.offloading import COPY_BYTES_PER_S, Offloading
from tests.seeds import each_seed


class Request:
    id = "r"


@each_seed(range(20))
def test_room_is_counted_and_tickets_are_used_once(seed):
    dice, offloading, offloaded, seen = Random(seed), Offloading(100), {}, set()
    for _ in range(200):
        size = dice.randint(0, 40)
        if dice.random() < 0.6 and offloading.can_hold(size):
            request = Request()
            ticket = offloading.open(request, size)
            assert ticket not in seen
            seen.add(ticket)
            offloaded[ticket] = request, size
            assert offloading.ticket_of(request) == ticket
        elif offloaded:
            ticket = dice.choice(sorted(offloaded))
            assert offloading.request(ticket) is offloaded.pop(ticket)[0]
            offloading.close(ticket)
        assert offloading.num_bytes == sum(size for _, size in offloaded.values()) <= 100
        offloading.check_invariants()
    with pytest.raises(KeyError):
        offloading.ticket_of(Request())


def test_copies_teach_how_long_they_take():
    offloading = Offloading(100)
    assert offloading.copy_s(10**9) == pytest.approx(1e9 / COPY_BYTES_PER_S)
    for _ in range(60):
        offloading.copied(10**6, 0.5)
    offloading.copied(0, 3.0)
    assert offloading.copy_s(2 * 10**6) == pytest.approx(1.0, rel=0.01)
