"""The trace of one API call: who began it, and the timelines of its choices until all have ended."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mesh.wire.requests import RequestSpec, Sampling
from router.history.timeline import RequestTimeline
from router.traces.context import ParentContext


class CallFacts(msgspec.Struct, frozen=True):
    """What spans tell of a call. ``operation`` is OpenTelemetry's word; ``num_choices`` are those of each prompt."""

    request_id: str
    response_id: str
    operation: str  # chat or text_completion
    model: str  # as the client named it
    is_stream: bool
    num_choices: int


class EndedChoice(msgspec.Struct, frozen=True):
    """One choice of a call that is over."""

    timeline: RequestTimeline
    sampling: Sampling


class EndedCall(msgspec.Struct, frozen=True):
    """A call that is over, with all that its spans are made from."""

    trace_id: int
    span_id: int  # of its server span
    parent: ParentContext | None
    facts: CallFacts
    choices: tuple[EndedChoice, ...]  # as they arrived
    is_in_share: bool


class CallTrace:
    """Collects the timelines of a call's choices, and is handed on when the last one has ended.

    A call may end one choice before it submits the next: it is over once it is also `close`d. Most calls are not kept,
    so that what is made for each is little: what spans are made from is put together by `ended_call`.
    """

    __slots__ = (
        "_choices",
        "_finish",
        "_is_closed",
        "_num_open",
        "describe",
        "header",
        "is_in_share",
        "parent",
    )

    def __init__(
        self, header: str, parent: ParentContext | None, is_in_share: bool, finish: Callable[["CallTrace"], None]
    ) -> None:
        """Begin a trace, or go on with that of ``parent``. ``header``: the ``traceparent`` of the answer, with the ids
        of the trace and of its server span; ``is_in_share``: it is kept however it ends; ``finish`` is told of its end.
        """
        self.header: Final = header
        self.parent: Final = parent
        self.is_in_share: Final = is_in_share
        self.describe: Callable[[], CallFacts] | None = None  # who takes the call sets it
        self._finish = finish
        self._choices: tuple[EndedChoice, ...] = ()
        self._num_open = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<CallTrace {self.name} {self._num_open} open, {len(self._choices)} ended>"

    @property
    def name(self) -> str:
        """The id of the trace, in 32 digits."""
        return self.header[3:35]

    @property
    def span_name(self) -> str:
        """The id of its server span, in 16 digits."""
        return self.header[36:52]

    @property
    def choices(self) -> Sequence[EndedChoice]:
        """The choices that are over, as they ended."""
        return self._choices

    def ended_call(self) -> EndedCall:
        """What its spans are made from, once it is over."""
        assert self.describe is not None
        choices = tuple(sorted(self._choices, key=lambda choice: choice.timeline.number))
        ids = int(self.name, 16), int(self.span_name, 16)
        return EndedCall(*ids, self.parent, self.describe(), choices, self.is_in_share)

    def arrived(self) -> None:
        """One more choice is in flight."""
        self._num_open += 1

    def ended(self, timeline: RequestTimeline, spec: RequestSpec) -> None:
        """A choice is over."""
        self._num_open -= 1
        self._choices += (EndedChoice(timeline, spec.sampling),)
        if self._is_closed:
            self._finish_if_over()

    def close(self) -> None:
        """No more choices will arrive."""
        self._is_closed = True
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if not self._num_open and self._choices and self.describe is not None:
            self._finish(self)
            self._choices, self.describe = (), None  # they know this trace: without a cycle, nobody collects it
