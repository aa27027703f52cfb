"""How many requests may be on their way in at a time: read, checked and tokenised, but not yet the router's."""

from router.generation import Overloaded

MAX_ENTERING = 256
RETRY_AFTER_S = 1.0


class Door:
    """Bounds the memory of bodies that arrive, and the work that is done before the router can say no.

    A context manager: whoever is within is entering.
    """

    def __init__(self, max_entering: int = MAX_ENTERING) -> None:
        self._max_entering = max_entering
        self._num_entering = 0

    def __repr__(self) -> str:
        return f"<Door {self._num_entering} of {self._max_entering} entering>"

    def __enter__(self) -> None:
        """Raise `Overloaded` if too many are entering."""
        if self._num_entering >= self._max_entering:
            raise Overloaded(f"{self._num_entering} requests are being read already", RETRY_AFTER_S)
        self._num_entering += 1

    def __exit__(self, *_: object) -> None:
        self._num_entering -= 1
