"""How long a modelled engine takes for one batch: its cost model over the chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap

from engines.batch import Batch, Chunk
from engines.costs import attended_tokens, decode_step_s
from mesh.messages import DecodeCost, PrefillCost


@dataclass(frozen=True, slots=True)
class StepCost:
    """Prompt chunks and decodes of one batch share its fixed costs: the larger of the two is paid, once.

    So a batch of decodes alone takes exactly its `DecodeCost`, and one chunk of a prompt exactly its `PrefillCost`.
    """

    prefill: PrefillCost
    decode: DecodeCost

    def elapsed_s(self, batch: Batch) -> float:
        """Seconds that the batch takes."""
        decodes = [chunk.start + 1 for chunk in batch.chunks if is_decode(chunk)]
        prefills = [(len(chunk.tokens), chunk.start) for chunk in batch.chunks if not is_decode(chunk)]
        if not prefills:
            return decode_step_s(self.decode, len(decodes), sum(decodes))
        fixed_s = max(self.prefill.fixed_s, self.decode.fixed_s if decodes else 0.0)
        return fixed_s + self._decodes_s(decodes) + sum(starmap(self._prefill_s, prefills))

    def _decodes_s(self, contexts: Sequence[int]) -> float:
        return self.decode.per_request_s * len(contexts) + self.decode.per_context_token_s * sum(contexts)

    def _prefill_s(self, num_tokens: int, num_before: int) -> float:
        cost = self.prefill
        attended = attended_tokens(num_tokens, num_before)
        return (
            cost.per_token_s * num_tokens + cost.per_token_context_s * attended + cost.per_cached_token_s * num_before
        )


def is_decode(chunk: Chunk) -> bool:
    """One token, drawn earlier, whose successor is to be drawn."""
    return chunk.draw is not None and len(chunk.tokens) == 1 and len(chunk.draw.generated) > 0
