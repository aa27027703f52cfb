import asyncio
from math import inf

import pytest

from mesh.membership.catching_up import MAX_CATCH_UPS, CatchingUp, catch_up

LAG_S = 0.1


class HeldUpClock:
    """Stands, but for sleeps, each of which takes longer than asked for as long as there are ``holds``."""

    def __init__(self, now, holds) -> None:
        self._now = now
        self._holds = list(holds)
        self.sleeps = 0

    def now(self):
        return self._now

    async def sleep(self, for_s):
        self.sleeps += 1
        self._now += for_s + (self._holds.pop(0) if self._holds else 0.0)


@pytest.mark.parametrize(
    ("late_s", "holds", "sleeps"),
    [
        (0.0, [], 0),
        (LAG_S / 2, [], 0),
        (1.0, [], 1),
        (1.0, [LAG_S / 2], 1),
        (1.0, [1.0], 2),
        (1.0, [1.0, 3.0, 0.0, 5.0], 3),
        (1.0, [1.0] * 100, MAX_CATCH_UPS),
    ],
)
async def test_who_was_held_up_waits_until_it_is_on_time_for_once(monkeypatch, late_s, holds, sleeps):
    clock = HeldUpClock(7.0 + late_s, holds)
    monkeypatch.setattr(asyncio, "sleep", clock.sleep)
    await catch_up(clock, 7.0, LAG_S)
    assert clock.sleeps == sleeps


def test_a_deadline_that_is_found_late_is_put_off_until_the_next_look_is_on_time():
    catching_up = CatchingUp(LAG_S)
    assert catching_up.puts_off(7.0, now=9.0)
    assert catching_up.looks_at(7.0) == 9.0 + LAG_S
    assert not catching_up.puts_off(7.0, now=9.0 + LAG_S)
    assert catching_up.looks_at(7.0) == 7.0


def test_nothing_is_put_off_once_nothing_is_due():
    """A deadline may be settled while it is put off: whoever looked again at once would look for ever."""
    catching_up = CatchingUp(LAG_S)
    assert catching_up.puts_off(7.0, now=9.0)
    assert catching_up.looks_at(inf) == inf
    assert catching_up.puts_off(inf, now=9.0 + LAG_S)
    assert catching_up.looks_at(20.0) == 20.0
