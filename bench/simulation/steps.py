"""How long an iteration takes: the engine's cost model over the chunks of its batch."""

from random import Random

from engines.batch import Batch, Chunk
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

    def elapsed_s(self, batch: Batch) -> float:
        """Seconds that the batch takes."""
        prefill, decode = self._prefill, self._decode
        fixed_s = variable_s = 0.0
        for chunk in batch.chunks:
            if is_decode(chunk):
                fixed_s = max(fixed_s, decode.fixed_s)
                variable_s += decode.per_request_s + decode.per_context_token_s * (chunk.start + 1)
            else:
                num_tokens = len(chunk.tokens)
                fixed_s = max(fixed_s, prefill.fixed_s)
                attended = num_tokens * (chunk.start + num_tokens / 2)
                variable_s += prefill.per_token_s * num_tokens + prefill.per_token_context_s * attended
        elapsed_s = fixed_s + variable_s
        return elapsed_s * self._random.lognormvariate(0.0, self._noise) if self._noise else elapsed_s


def is_decode(chunk: Chunk) -> bool:
    """One token, drawn earlier, whose successor is to be drawn."""
    return chunk.draw is not None and len(chunk.tokens) == 1 and len(chunk.draw.generated) > 0
