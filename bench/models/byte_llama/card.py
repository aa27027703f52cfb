"""The model's card, from figures of the run that made it."""

import platform
from dataclasses import dataclass

import torch

from bench.models.byte_llama.network import Shape

TEMPLATE = """\
# byte-llama

A byte-level Llama of {num_parameters:,} parameters that continues text in the manner of Python's documentation.
It is small on purpose: it loads in an instant, so that a mesh with several models fits a laptop and tests of a
real model are fast. It knows nothing, follows no instructions and has no chat template: ask it through
`/v1/completions`.

| | |
|---|---|
| layers, width, MLP width | {shape.num_layers}, {shape.hidden_size}, {shape.intermediate_size} |
| heads, KV heads, head size | {shape.num_heads}, {shape.num_kv_heads}, {shape.head_dim} |
| vocabulary | 256 bytes (the id is the byte), begin, end |
| context | {shape.context:,} tokens, which are bytes |
| weights | {dtype} |

## What it has read

{training_bytes:,} bytes in {num_training:,} documents that Python {python} ships: documentation strings and
comments of the standard library's source files (`.py`, without tests, bundled wheels and site packages), the
topics of `help()` (`pydoc_data/topics.py`) and `LICENSE.txt`, nothing else. `bench/models/byte_llama/text.py` says
exactly which. SHA-256 of the documents, joined by zero bytes: `{training_sha256}`.

That text is Copyright (c) 2001 Python Software Foundation and others, all rights reserved, and comes under the
[PSF License Agreement Version 2](https://docs.python.org/3/license.html) (`LICENSE.txt` beside the standard
library). The network, and how it was trained, are this repository's.

## How well

Bits per byte of {held_out_bytes:,} bytes in {num_held_out:,} documents from source files of which nothing was
trained on. Documents that share 64 bytes in a row with the training text were left out.

| | bits per byte |
|---|---|
| **byte-llama**, as stored | **{stored_bits:.3f}** |
| byte-llama in float32, as trained | {float32_bits:.3f} |
| as stored, with {short_context} tokens of context | {short_bits:.3f} |

The network begins anew with every document.

Asked to go on greedily from "{prompt}":

```
{sample}
```

## Make it again

    {command} --out DIR

with Python {python} and torch {torch}. Another Python has another text, so the weights differ.
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run measured; ``_bits`` are bits per held-out byte."""

    num_parameters: int
    num_training: int
    training_bytes: int
    training_sha256: str
    num_held_out: int
    held_out_bytes: int
    float32_bits: float
    stored_bits: float
    short_context: int  # tokens
    short_bits: float
    prompt: str
    sample: str


def card(figures: Figures, shape: Shape, dtype: torch.dtype, command: str) -> str:
    return TEMPLATE.format(
        **{field: getattr(figures, field) for field in Figures.__slots__},
        shape=shape,
        dtype=str(dtype).removeprefix("torch."),
        command=command,
        python=platform.python_version(),
        torch=torch.__version__.partition("+")[0],
    )
