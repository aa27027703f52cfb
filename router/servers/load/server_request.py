"""Holds one request on a server that others run, as its gateway knows it."""

from dataclasses import dataclass
from typing import Final

from mesh.wire.requests import PRIORITY_BATCH, Epoch, RequestSpec

FIRST_TOKEN_PROMISES: Final = 10.0  # times its TTFT promise, a first token may take before its call is given up
WHOLE_ANSWER_S: Final = 3600.0  # that an answer in one piece may take: nothing is heard of it meanwhile


@dataclass(slots=True)
class AnswerWindow:
    """Tokens of one answer after ``since``, and what the server had done by then."""

    since: float
    num_running: int
    num_prefills: int  # iterations with prompts, of all requests
    prompt_tokens: int  # computed in those
    num_tokens: int = 0


@dataclass(slots=True, eq=False)
class ServerRequest:
    """One request on a server."""

    id: str
    service: str
    epoch: Epoch
    num_prompt: int
    num_generated: int
    most_tokens: int
    slo_tpot_s: float
    due_at: float  # its first token
    priority: int
    sent_at: float
    heard_at: float
    patience_s: float  # for its first token
    begun_at: float | None = None  # the first step that ended after it was sent, and so the next one may have it
    step: int = 0  # of its last token; before its first one, of ``begun_at``
    num_running: int = 0  # decodes there when it was sent, or when it began
    first_at: float | None = None
    left_s: float = 0.0  # predicted, of its prefill
    unlearnt: AnswerWindow | None = None  # its newest tokens, whose pace is not learnt yet
    num_fetched: int = 0  # tokens of its prompt whose KV comes from another server
    is_whole: bool = False  # its answer comes in one piece: nothing tells when its first token was there

    @classmethod
    def of(cls, spec: RequestSpec, epoch: Epoch, now: float) -> "ServerRequest":
        return cls(
            spec.id,
            spec.service,
            epoch,
            len(spec.prompt),
            len(spec.generated),
            max(spec.sampling.max_tokens, len(spec.generated) + 1),
            spec.slo_tpot_s,
            now - spec.age_s + spec.slo_ttft_s,
            spec.priority,
            now,
            now,
            min(FIRST_TOKEN_PROMISES * spec.slo_ttft_s, WHOLE_ANSWER_S),
        )

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + self.num_generated

    @property
    def is_filler(self) -> bool:
        return self.priority <= PRIORITY_BATCH

    def silent_until(self, read_timeout_s: float) -> float:
        """Return when it has been silent for too long."""
        if self.is_whole:
            return self.sent_at + WHOLE_ANSWER_S
        patience_s = read_timeout_s if self.first_at is not None else max(read_timeout_s, self.patience_s)
        return self.heard_at + patience_s
