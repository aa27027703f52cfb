"""Stands for the tokens of a prompt where the gateway has no tokenizer: one number for every four bytes of its text.

Equal beginnings of texts have equal beginnings here, so that prefixes can be told, and lengths are about right: costs
are learnt in the same unit.
"""

import sys
from array import array
from typing import Final

BYTES: Final = 4  # of UTF-8 text, for which one number stands
MOST: Final = 2**20  # numbers of one prompt: what is beyond counts no more


def pseudo_tokens(text: bytes) -> list[int]:
    """Return at least one number."""
    num_bytes = min(-(-len(text) // BYTES), MOST) * BYTES
    numbers = array("I", text[:num_bytes].ljust(max(num_bytes, BYTES), b"\0"))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
