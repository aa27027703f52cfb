import asyncio

import pytest

from mesh.membership.catching_up import MAX_CATCH_UPS, catch_up

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
