"""How long an iteration takes: the engine's cost model over the chunks of its batch."""

from random import Random

from engines.batch import Batch, Chunk
from engines.costs import decode_step_s
from mesh.messages import DecodeCost, PrefillCost


class StepModel:
    """Prefill chunks and decodes of one batch share its fixed costs: the larger of the two is paid, once.

    So a batch of decodes alone costs exactly `DecodeCost`, and one chunk of a prompt exactly `PrefillCost`. ``noise``
    is the standard deviation of the logarithm of a factor drawn anew for each step.
    """

    def __init__(self, prefill: PrefillCost, decode: DecodeCost, noise: float, random: Random) -> None:
        self._prefill = prefill
        self._decode = decode
        self._noise = noise
        self._random = random

    @property
    def is_exact(self) -> bool:
        """Whether equal batches take equal times."""
        return not self._noise

    def elapsed_s(self, batch: Batch) -> float:
        """Seconds that the batch takes."""
        decodes = [chunk.start + 1 for chunk in batch.chunks if is_decode(chunk)]
        elapsed_s = self.decodes_s(len(decodes), sum(decodes))
        if len(decodes) < len(batch.chunks):
            shared_s = min(self._prefill.fixed_s, self._decode.fixed_s) if decodes else 0.0
            elapsed_s += self._prefills_s(batch) - shared_s
        return elapsed_s * self._random.lognormvariate(0.0, self._noise) if self._noise else elapsed_s

    def decodes_s(self, num_requests: int, context_tokens: int) -> float:
        """Of a step of decodes alone, without noise."""
        return decode_step_s(self._decode, num_requests, context_tokens)

    def _prefills_s(self, batch: Batch) -> float:
        cost = self._prefill
        elapsed_s = cost.fixed_s
        for chunk in batch.chunks:
            if not is_decode(chunk):
                num_tokens = len(chunk.tokens)
                attended = num_tokens * (chunk.start + num_tokens / 2)
                elapsed_s += cost.per_token_s * num_tokens + cost.per_token_context_s * attended
        return elapsed_s


def is_decode(chunk: Chunk) -> bool:
    """One token, drawn earlier, whose successor is to be drawn."""
    return chunk.draw is not None and len(chunk.tokens) == 1 and len(chunk.draw.generated) > 0
