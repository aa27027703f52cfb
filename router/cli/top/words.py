"""Numbers and names as ``mesh top`` writes them: short, and harmless to a terminal."""

import time
from collections.abc import Iterable
from typing import Final

from mesh.show.words import plain

MOST_LETTERS: Final = 200  # of anything that a feed says
LEVELS: Final = "▁▂▃▄▅▆▇█"


def clean(text: str) -> str:
    """Text of the feed in one line, without what a terminal would obey."""
    return plain(text[:MOST_LETTERS])


def brief_time(seconds: float | None) -> str:
    """Write a time in few characters, such as ``85 ms`` or ``12.3 s``; ``-``: it is not known."""
    if seconds is None:
        return "-"
    if abs(seconds) < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 99.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if abs(seconds) < 6000 else f"{seconds / 3600:.0f} h"


def share(part: float, whole: float) -> str:
    """The part in percent. Rounding makes no whole of what lacks something."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return f"{percent:.1f}%" if 99 <= percent < 99.95 else "99.9%" if 99.95 <= percent < 100 else f"{percent:.0f}%"


def amount(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f}"


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def spark(shares: Iterable[float | None]) -> str:
    """One letter for each share from 0 to 1; a blank for None."""
    return "".join(" " if one is None else LEVELS[_level(one)] for one in shares)


def _level(share_: float) -> int:
    return min(len(LEVELS) - 1, max(0, int(share_ * len(LEVELS))))
