"""The token order of one request: every token once and in order, whoever sends it.

Theory of operation. Tokens come in deltas under the epoch of the engine that owns the request. The greatest epoch seen
is the current one. Its first delta ends with a token of its own. What is below that token, the *handover*, may have
been sampled by earlier owners of the same attempt, and may still be on its way from them: it is taken. Anything else
of an older epoch is fenced: its sender does not own the request any more. A delta beyond the next offset is held until
the gap fills; if it does not, the request has to be dispatched anew from the tokens at hand.
"""

from dataclasses import dataclass

from mesh.wire.requests import Delta, Epoch, FinishReason, TokenLogprobs
from router.generation import TokenBatch

MAX_HELD = 256  # deltas behind a gap


@dataclass(frozen=True, slots=True)
class Fence:
    """The sender is not the owner any more: stop what it runs under this epoch or an older one."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Broken:
    """The stream cannot go on under this owner."""

    reason: str


class TokenStream:
    """Tokens so far, and what is held behind a gap. ``num_known`` tokens were generated before the first epoch."""

    __slots__ = (
        "_finished",
        "_handover",
        "_held",
        "_num_cached",
        "_prompt_logprobs_sent",
        "epoch",
        "gap_since",
        "next_offset",
        "tokens",
    )

    def __init__(self, num_known: int = 0) -> None:
        self.tokens: list[int] = []  # taken from deltas, in order
        self.epoch = Epoch(0)
        self.gap_since: float | None = None
        self.next_offset = num_known
        self._handover = num_known
        self._held: dict[int, Delta] = {}  # by offset; of the current epoch
        self._finished = False
        self._num_cached = 0
        self._prompt_logprobs_sent = False

    def __repr__(self) -> str:
        held = f" held={sorted(self._held)}" if self._held else ""
        return f"<TokenStream {self.epoch} next={self.next_offset}{held}{' finished' * self._finished}>"

    @property
    def has_prompt_logprobs(self) -> bool:
        return self._prompt_logprobs_sent

    def start_attempt(self, attempt: int) -> None:
        """The request is dispatched anew: nothing of older attempts counts from now on."""
        self.epoch = Epoch(attempt)
        self._handover = self.next_offset
        self._held.clear()
        self.gap_since = None

    def take(self, delta: Delta, now: float) -> list[TokenBatch] | Fence | Broken:
        """Return what a delta makes deliverable: nothing if it is a duplicate or must be held."""
        if self._finished:
            return []
        if delta.epoch != self.epoch:
            if delta.epoch < self.epoch:
                return self._take_late(delta, now)
            self._change_owner(delta)
        if delta.offset > self.next_offset:
            return self._hold(delta, now)
        if delta.finish is not None and delta.offset + len(delta.tokens) < self.next_offset:
            return Broken(f"ended at token {delta.offset + len(delta.tokens)}, after {self.next_offset} were sent")
        batch = self._append(delta, delta.finish)
        if not self._held:
            return [] if batch is None else [batch]
        return self._release(batch)

    def _change_owner(self, delta: Delta) -> None:
        """A gap that the new owner leaves open is as old as it was: who moves often must not hide it."""
        self.epoch = delta.epoch
        self._handover = delta.offset + max(len(delta.tokens) - 1, 0)
        self._held.clear()
        if delta.offset <= self.next_offset:
            self.gap_since = None

    def _take_late(self, delta: Delta, now: float) -> list[TokenBatch] | Fence | Broken:
        """A delta of an earlier owner: only tokens from before the handover count."""
        is_before_handover = delta.offset + len(delta.tokens) <= self._handover and delta.finish is None
        if delta.epoch.attempt < self.epoch.attempt or not is_before_handover:
            return Fence(delta.epoch)
        if delta.offset > self.next_offset:
            return self._hold(delta, now)
        return self._release(self._append(delta, None))

    def _hold(self, delta: Delta, now: float) -> list[TokenBatch] | Broken:
        if len(self._held) >= MAX_HELD:
            return Broken(f"more than {MAX_HELD} messages arrived behind a gap at token {self.next_offset}")
        known = self._held.get(delta.offset)
        if known is None or len(known.tokens) <= len(delta.tokens):
            self._held[delta.offset] = delta
        if self.gap_since is None:
            self.gap_since = now
        return []

    def _release(self, first: TokenBatch | None) -> list[TokenBatch]:
        """The batches that a filled gap sets free."""
        batches = [] if first is None else [first]
        for offset in sorted(self._held):
            if offset > self.next_offset or self._finished:
                break
            delta = self._held.pop(offset)
            batch = self._append(delta, delta.finish)
            if batch is not None:
                batches.append(batch)
        if self._finished:
            self._held.clear()
        if not self._held:
            self.gap_since = None
        return batches

    def _append(self, delta: Delta, finish: FinishReason | None) -> TokenBatch | None:
        """Take the tokens of ``delta`` that are new; None if nothing is."""
        skip = self.next_offset - delta.offset
        tokens = tuple(delta.tokens[skip:] if skip else delta.tokens)
        prompt_logprobs = None if delta.prompt_logprobs is None else self._prompt_logprobs(delta.prompt_logprobs)
        if not tokens and finish is None and prompt_logprobs is None:
            return None
        self.tokens += tokens
        self.next_offset += len(tokens)
        self._finished = finish is not None
        self._num_cached = self._num_cached or delta.num_cached_tokens
        logprobs = None if delta.logprobs is None else tuple(delta.logprobs[skip:])
        return TokenBatch(tokens, finish, self._num_cached, logprobs, prompt_logprobs, delta.vector, delta.brought)

    def _prompt_logprobs(self, found: list[TokenLogprobs | None]) -> tuple[TokenLogprobs | None, ...] | None:
        if self._prompt_logprobs_sent:
            return None
        self._prompt_logprobs_sent = True
        return tuple(found)
