"""The part of a call's trace (`router.traces.call_trace.CallTrace`) that the history of a request knows."""

from typing import Protocol


class RequestTrace(Protocol):
    """The trace that a request belongs to."""

    @property
    def name(self) -> str:
        """The id of the trace as people search for it."""

    def arrived(self) -> None:
        """One more request of the call is in flight."""
