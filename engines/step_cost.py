"""How long a modelled engine takes for one batch: its cost model over the chunks."""

from dataclasses import dataclass

from engines.batch import Batch, Chunk
from engines.costs import attended_tokens
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
        fixed_s = variable_s = 0.0
        for chunk in batch.chunks:
            if is_decode(chunk):
                fixed_s = max(fixed_s, self.decode.fixed_s)
                variable_s += self.decode.per_request_s + self.decode.per_context_token_s * (chunk.start + 1)
            else:
                fixed_s = max(fixed_s, self.prefill.fixed_s)
                variable_s += self._prefill_s(len(chunk.tokens), chunk.start)
        return fixed_s + variable_s

    def _prefill_s(self, num_tokens: int, num_before: int) -> float:
        attended = attended_tokens(num_tokens, num_before)
        return self.prefill.per_token_s * num_tokens + self.prefill.per_token_context_s * attended


def is_decode(chunk: Chunk) -> bool:
    """One token, drawn earlier, whose successor is to be drawn."""
    return chunk.draw is not None and len(chunk.tokens) == 1 and len(chunk.draw.generated) > 0
