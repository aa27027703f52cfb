"""One iteration of an engine: the shares of requests that it computes together."""

from collections.abc import Sequence

from engines.costs.step_cost import StepLoad, load_of_rows
from engines.engine_request import EngineRequest
from engines.scheduling.batch import Batch, Drafting, Rows
from engines.scheduling.scheduler import Share
from engines.scheduling.service import Service


class Step:
    """The iteration that is being computed. Never changes. ``prompts``: those of its shares that are no decodes.
    ``rows``: as in `Batch`.
    """

    __slots__ = ("prompts", "rows", "service", "shares", "started_at")

    def __init__(
        self,
        service: Service,
        shares: Sequence[Share],
        prompts: Sequence[Share],
        started_at: float,
        rows: Rows | None = None,
    ) -> None:
        self.service = service
        self.shares = shares
        self.prompts = prompts
        self.started_at = started_at
        self.rows = rows

    def __repr__(self) -> str:
        return f"<Step of {self.service.name}, {len(self.shares)} shares, since {self.started_at:.6f} s>"

    def batch(self) -> Batch:
        """Return the step in the form that an executor takes, with the tokens themselves, as they are now."""
        chunks = [share.request.chunk(share.num_tokens, share.drafts, share.drafting) for share in self.shares]
        speculation = self.service.speculation
        return Batch(self.service.name, chunks, self.rows, 0 if speculation is None else speculation.num_forced)

    def load(self) -> StepLoad:
        """Return what it computes, as its requests are now."""
        if self.rows is not None:
            return load_of_rows(self.rows, decodes=not self.prompts)
        chunks = [(share.num_tokens, share.request.num_computed) for share in self.prompts]
        rows = [(1 + num_drafts(share), len(share.request.tokens)) for share in self.shares]
        context = sum([number * length for number, length in rows])
        context -= sum([len(share.request.tokens) for share in self.prompts])
        num_decodes = sum([number for number, _ in rows]) - len(self.prompts)
        return StepLoad(chunks, num_decodes, context, self._adapter_weights())

    def drafting(self) -> list[Drafting]:
        """Return what a draft model writes before it."""
        return [share.drafting for share in self.shares if share.drafting is not None]

    def computes(self, service: Service) -> bool:
        """Return whether it needs the weights of that service, be it to write drafts."""
        return self.service is service or any(drafting.service == service.name for drafting in self.drafting())

    def _adapter_weights(self) -> int:
        """Of all LoRA adapters in it, each once."""
        found = [one for share in self.shares if (one := share.request.spec.adapter) is not None]
        return sum({one.key: one.num_weights for one in found}.values()) if found else 0

    def prefill_done_s(self, now: float) -> float:
        """Return the seconds of prompts that are done by now: at most what the step was given of them, as it may hold
        decodes, too.
        """
        given_s = sum([self.service.chunk_s(share.num_tokens, share.request.num_computed) for share in self.prompts])
        return min(now - self.started_at, given_s)

    def prefills_left_s(self, now: float) -> dict[EngineRequest, float]:
        """Return the predicted seconds of each of its prompts that are to come before it ends."""
        left_s, elapsed_s = dict[EngineRequest, float](), now - self.started_at
        for share in self.prompts:
            given_s = self.service.chunk_s(share.num_tokens, share.request.num_computed)
            left_s[share.request] = max(0.0, given_s - elapsed_s)
            elapsed_s = max(0.0, elapsed_s - given_s)
        return left_s


def num_drafts(share: Share) -> int:
    """Return how many drafts a share has, or will have when the draft model has written them."""
    return len(share.drafts) if share.drafting is None else share.drafting.number
