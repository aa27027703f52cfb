"""Lists what the placement daemon wants done."""

from dataclasses import dataclass

from router.placement.change.changeover import Order
from router.placement.search.question import Question


@dataclass(frozen=True, slots=True)
class Ask:
    """Search for an answer to this beside everything else, and tell `PlacementDaemon.answered`."""

    question: Question


@dataclass(frozen=True, slots=True)
class Abandon:
    """Nobody waits for the answer to this question any more."""

    question: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Send an order to an engine, or to the supervisor of one."""

    process: str
    order: Order


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened, in words, for the log."""

    line: str
    is_problem: bool = False


Effect = Ask | Abandon | Tell | Note
