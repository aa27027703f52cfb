"""One request of a trace."""

from dataclasses import dataclass, field, replace
from typing import Final

from router.history.records import Outcome

LONGEST_S: Final = 366 * 86400.0  # of any load: what would take longer has wrong times


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What became of a request when it was recorded. Seconds from its arrival, as in a `Record`."""

    outcome: Outcome
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    queued_s: float | None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace. ``blocks`` name the prompt's blocks of `PROMPT_BLOCK` tokens: those with equal names and
    pasts are the same.

    What the trace does not say is None.
    """

    at_s: float  # since the first request
    num_input: int
    num_output: int
    blocks: tuple[int, ...] = ()
    service: str | None = None
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    priority: int | None = None
    was_answered: bool = True  # in full
    tenant: str = ""  # whose it is
    is_structured: bool = False  # its answer follows a grammar
    think_s: float = 0.0  # between the answer that its client waits for, if it waits for one, and the request
    then: tuple["TraceRequest", ...] = ()  # later turns of its conversation, whose prompts begin with those before
    answer: RecordedAnswer | None = field(default=None, compare=False)

    def asking(self, service: str | None) -> "TraceRequest":
        """Ask for this service, with all turns of its conversation."""
        return replace(self, service=service, then=tuple(replace(turn, service=service) for turn in self.then))
