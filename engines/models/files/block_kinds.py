"""Kinds of quantised weights that engines read as they are, by GGUF's names.

Weights of an output come in blocks. A code stands for ``scale * code``, or ``scale * code + minimum``, rounded once to
float32: the very value that de-quantising gives. Whether 32 weights in a row or 16 share a scale, how wide codes are
and whether there are minima is the `Form`, in which engines compute.
"""

from dataclasses import dataclass
from enum import IntEnum

# Beside model.safetensors: blocks of weights [out, bytes], kinds as metadata. Its name keeps it from loaders of
# *.safetensors, as which it is written.
BLOCKS_FILE = "model.blocks"


class Form(IntEnum):
    """How codes are held for computing; the numbers are those of csrc/kernels.h."""

    NIBBLES = 0  # 4 bits, not negative; 32 share a scale and a minimum
    BYTES = 1  # 8 bits, signed; 32 share a scale
    BYTES_MINIMA = 2  # 8 bits, signed; 32 share a scale and a minimum
    BYTES_16 = 3  # 8 bits, signed; 16 share a scale
    HALVES = 4  # no codes: bfloat16, 32 packed together

    @property
    def group(self) -> int:
        """Weights that share a scale."""
        return 16 if self is Form.BYTES_16 else 32

    @property
    def has_minima(self) -> bool:
        return self in (Form.NIBBLES, Form.BYTES_MINIMA)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of GGUF block. ``num_weights`` of a block and its ``num_bytes``."""

    name: str
    form: Form
    num_weights: int
    num_bytes: int


KINDS = {
    kind.name: kind
    for kind in (
        Kind("Q4_0", Form.NIBBLES, 32, 18),
        Kind("Q4_1", Form.NIBBLES, 32, 20),
        Kind("Q5_0", Form.BYTES, 32, 22),
        Kind("Q5_1", Form.BYTES_MINIMA, 32, 24),
        Kind("Q8_0", Form.BYTES, 32, 34),
        Kind("Q4_K", Form.NIBBLES, 256, 144),
        Kind("Q5_K", Form.BYTES_MINIMA, 256, 176),
        Kind("Q6_K", Form.BYTES_16, 256, 210),
    )
}
