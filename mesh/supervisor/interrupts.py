"""Ctrl-C and SIGTERM, before an event loop hears them."""

import signal
from types import FrameType


class Interrupts:
    """Raises `KeyboardInterrupt` when one comes, and remembers it: whoever comes to an event loop nevertheless asks.

    What a handler raises is lost where the code that runs then ignores exceptions, as callbacks of the garbage
    collector do, and libraries written in C that clear errors.
    """

    def __init__(self) -> None:
        self.has_come = False

    def listen(self) -> None:
        """Take both signals of this process. For the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True
        raise KeyboardInterrupt
