"""Follows what engines tell of the prefixes that they hold, and notices what is missing. Pure."""

from dataclasses import dataclass
from typing import Final

from mesh.wire.prefixes import PrefixesHeld

AGAIN: Final = 16  # statuses after which to ask an engine again that has not answered


@dataclass(slots=True)
class _Followed:
    """``number``: of the last message; None: nothing was heard. ``num_behind``: statuses since that told of more."""

    number: int | None = None
    num_behind: int = 0


class PrefixNews:
    """Counts messages of engines. A status may pass a message on its way, so one that tells of more proves nothing: the
    next one does.
    """

    def __init__(self) -> None:
        self._of: dict[str, _Followed] = {}  # by engine

    def __repr__(self) -> str:
        return f"<PrefixNews of {list(self._of)}>"

    def must_ask(self, engine: str, number: int) -> bool:
        """Take the number that a status tells. Return whether to ask the engine for all that it holds."""
        if number == 0:
            return False
        known = self._of.setdefault(engine, _Followed())
        if known.number == number:
            known.num_behind = 0
            return False
        known.num_behind += 1
        patience = 1 if known.number is None else 2
        return known.num_behind >= patience and (known.num_behind - patience) % AGAIN == 0

    def follows(self, engine: str, news: PrefixesHeld) -> bool:
        """Take a message. Return whether nothing is missing before it; else it is of no use."""
        known = self._of.setdefault(engine, _Followed())
        if not news.is_all and (known.number is None or news.number != known.number + 1):
            return False
        known.number, known.num_behind = news.number, 0
        return True

    def forget(self, engine: str) -> None:
        """An engine is gone: the next one of its name begins anew."""
        self._of.pop(engine, None)
