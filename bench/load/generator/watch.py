"""How late an event loop is."""

import asyncio
import time
from collections.abc import Callable

LOOK_S = 0.02


async def watch_loop(tell: Callable[[float], None]) -> None:
    """Again and again, until it is cancelled."""
    while True:
        expected = time.monotonic() + LOOK_S
        await asyncio.sleep(LOOK_S)
        tell(max(0.0, time.monotonic() - expected))
