"""Remembers how the last requests ended here: their gateways may not have heard it."""

from engines.engine_request import EngineRequest
from mesh.wire.requests import Delta, ProbeQuestion

MOST_REQUESTS = 256
MOST_TOKENS = 64  # of each; who missed more of them is told that the request is not here


class FinalStatuses:
    """Bounded: the oldest go."""

    def __init__(self) -> None:
        self._deltas: dict[str, Delta] = {}  # by request, oldest first

    def __repr__(self) -> str:
        return f"<FinalStatuses of {len(self._deltas)} requests>"

    def remember(self, request: EngineRequest) -> None:
        """Remember a request that has finished, and that this was said."""
        offset = max(request.first_known_offset, request.num_generated - MOST_TOKENS)
        last = request.resend_from(offset)
        self._deltas.pop(request.id, None)
        if last is not None:
            self._deltas[request.id] = last
        if len(self._deltas) > MOST_REQUESTS:
            del self._deltas[next(iter(self._deltas))]

    def answer(self, question: ProbeQuestion) -> Delta | None:
        """The end of the request with what was before it; None if it did not end here, or too long ago."""
        last = self._deltas.get(question.request)
        if last is None or last.epoch.attempt != question.attempt:
            return None
        return last if last.offset <= question.next_offset <= last.offset + len(last.tokens) else None
