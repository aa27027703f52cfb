"""Kinds of quantised weights that engines read as they are: 32 weights of an output share a scale.

Some kinds have a minimum as well. A code stands for ``scale * code + minimum``, rounded once to float32: the very value
that de-quantising gives.
"""

from dataclasses import dataclass

# Beside model.safetensors: blocks of weights [out, bytes], kinds as metadata. Its name keeps it from loaders of
# *.safetensors, as which it is written.
BLOCKS_FILE = "model.blocks"
GROUP = 32  # weights


@dataclass(frozen=True, slots=True)
class Kind:
    """A block is ``head_bytes`` of float16 (the scale, and a minimum if there is one) and codes."""

    bits: int
    head_bytes: int
    offset: int = 0  # what codes are above the number that is scaled

    @property
    def block_bytes(self) -> int:
        return self.head_bytes + GROUP * self.bits // 8


KINDS = {"Q4_0": Kind(4, 2, offset=8), "Q4_1": Kind(4, 4), "Q8_0": Kind(8, 2)}  # GGUF's names
