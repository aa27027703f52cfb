"""Bounds of one gateway's dispatcher."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """Counts are of requests."""

    max_requests: int  # in flight, waiting ones included
    max_waiting: int
    reply_s: float  # an engine's answer to Submit, and the filling of a gap in a token stream
    stall_s: float = 60.0  # without a word from the owner, beyond four times the predicted TTFT; and without a token
    recovery_s: float = 30.0  # for an interrupted request while no engine could take it, beyond its deadline
    patience_s: float = 600.0  # for one while some could, had they room, beyond its deadline
    max_deaths: int = 4  # of engines under one request: it may be what kills them
    max_failed_steps: int = 2  # of a request alone: it is what they fail of
    ask_s: float | None = (
        None  # of silence, after which engines are asked (`router.requests.probing`); None: as ``reply_s``
    )
