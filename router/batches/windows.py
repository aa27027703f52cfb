"""The time in which a batch is to be done: ``24h`` and the like."""

import re
from typing import Final

_WINDOW: Final = re.compile(r"([1-9][0-9]{0,3})([mhd])")
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}
LONGEST_S: Final = 7 * 86400


def window_s(text: str) -> int:
    """Return its seconds. Raise `ValueError`, saying what would be right."""
    found = _WINDOW.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 60 <= seconds <= LONGEST_S:
        raise ValueError(f'{text[:32]!r} is no window; use "24h", or minutes, hours or days such as "30m", up to "7d"')
    return seconds
