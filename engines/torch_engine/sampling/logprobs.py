"""Log-probabilities under the model itself, before penalties, temperature and cuts."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.scheduling.batch import Chunk
from mesh.wire.requests import TokenLogprobs

MAX_TAILS = 256  # prompts in the middle of being computed
ROWS = 64  # of the vocabulary's width at a time


def of_tokens(logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
    """Return, for each row of ``logits`` [rows, vocabulary], the log-probabilities of its token and of the ``counts``
    likeliest ones.
    """
    norm = logits.logsumexp(dim=-1, keepdim=True)
    chosen = (logits.gather(1, logits.new_tensor(tokens).long()[:, None]) - norm).view(-1).tolist()
    values, ids = logits.topk(min(max(counts), logits.shape[-1]), dim=-1)
    rows = zip(tokens, chosen, counts, ids.tolist(), (values - norm).tolist(), strict=True)
    return [
        TokenLogprobs(token, own, list(zip(top_ids[:count], top[:count], strict=True)))
        for token, own, count, top_ids, top in rows
    ]


@dataclass(frozen=True, slots=True)
class _Tail:
    """The hidden state that predicts the token at ``position``."""

    position: int
    hidden: Tensor


class PromptLogprobs:
    """Log-probabilities of prompts. A chunk's first token is predicted by the chunk before: its last state is kept."""

    def __init__(self, to_logits: Callable[[Tensor], Tensor]) -> None:
        self._to_logits = to_logits
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    def compute(self, chunk: Chunk, hidden: Tensor) -> list[TokenLogprobs | None]:
        """Compute the log-probabilities of a chunk of a prompt. ``hidden`` is [tokens, size]. The first entry is None
        at position 0, or if the state before is not known.
        """
        count = chunk.prompt_logprobs or 0
        tail = self._tails.pop(chunk.request, None)
        follows = tail is not None and tail.position == chunk.start
        states = torch.cat([tail.hidden, hidden[:-1]]) if tail is not None and follows else hidden[:-1]
        tokens = list(chunk.tokens) if follows else list(chunk.tokens[1:])
        known: list[TokenLogprobs | None] = []
        for first in range(0, len(tokens), ROWS):
            part = tokens[first : first + ROWS]
            known += of_tokens(self._to_logits(states[first : first + ROWS]), part, [count] * len(part))
        if chunk.draw is None:
            self._keep(chunk, hidden[-1:])
        return known if follows else [None, *known]

    def _keep(self, chunk: Chunk, last: Tensor) -> None:
        self._tails[chunk.request] = _Tail(chunk.start + len(chunk.tokens), last.clone())
        while len(self._tails) > MAX_TAILS:
            self._tails.popitem(last=False)
