"""A process that was held up itself hears what others said meanwhile, before their silence counts.

Messages that came in the meantime have yet to be read, and who shares the machine may have been held up, too.
"""

import asyncio

from mesh.clock import Clock

MAX_CATCH_UPS = 5  # in a row: who is held up again and again finds the dead at last, too


async def catch_up(clock: Clock, due_at: float, lag_s: float) -> None:
    """After a timer that was due at ``due_at``: late by more than ``lag_s``, wait as long, until that is on time."""
    for _ in range(MAX_CATCH_UPS):
        now = clock.now()
        if now - due_at <= lag_s:
            return
        due_at = now + lag_s
        await asyncio.sleep(lag_s)
