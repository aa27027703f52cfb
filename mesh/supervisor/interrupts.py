"""Ctrl-C and SIGTERM, before an event loop hears them."""

import signal
from types import FrameType


class Interrupts:
    """Remembers that one has come, and raises `KeyboardInterrupt` until `hold`. Who then runs an event loop asks
    ``has_come`` when the loop hears signals itself.

    What a handler raises is lost where the code that runs then ignores exceptions, as callbacks of the garbage
    collector do, and libraries written in C that clear errors. And an event loop that is interrupted between two steps
    may wait for ever for the one that it forgot.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._are_held = False

    def listen(self) -> None:
        """Take both signals of this process. For the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)

    def hold(self) -> None:
        """Raise nothing any more."""
        self._are_held = True

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True
        if not self._are_held:
            raise KeyboardInterrupt
