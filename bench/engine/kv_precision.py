"""How much worse a model predicts a text when its KV is in 8 bits, and what KV of a token takes of memory.

    python -m bench.engine.kv_precision [--model REFERENCE] [--dtype float32] [--windows 8] [--tokens 1024]

The text is that of Python's help on its topics (`pydoc_data.topics`), which comes with the interpreter. Windows of it
are prompts, whose tokens are all predicted from those before; their KV is read as it is stored.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from bench.engine.under_test import BLOCK_SIZE, GREEDY, EngineUnderTest
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from engines.models.store import prepared_dir
from engines.models.text.tokenizer import Tokenizer
from engines.scheduling.batch import Chunk

KV_DTYPES = (None, "int8")  # None: that of the activations


@dataclass(frozen=True, slots=True)
class KVPrecision:
    """``nats``: of each token, in order. ``bytes_per_token``: of KV."""

    kv_dtype: str
    bytes_per_token: int
    nats: Sequence[float]

    @property
    def perplexity(self) -> float:
        return math.exp(sum(self.nats) / len(self.nats))


def windows_of(folder: Path, count: int, size: int) -> list[list[int]]:
    """Equal windows of the text, as far from each other as it allows."""
    tokens = Tokenizer.load(folder).encode("\n\n".join(topics[name] for name in sorted(topics)))
    step = (len(tokens) - size) // count
    return [tokens[step * number :][:size] for number in range(count)]


def measure(folder: Path, dtype: str, kv_dtype: str | None, windows: Sequence[Sequence[int]]) -> KVPrecision:
    size = len(windows[0])
    engine = EngineUnderTest(folder, dtype, size, kv_dtype=kv_dtype)
    nats = list[float]()
    for window in windows:
        chunk = Chunk("text", window, 0, engine.blocks(0, size), GREEDY, prompt_logprobs=0)
        [result] = engine.execute([chunk]).chunks
        nats += [-entry.logprob for entry in result.prompt_logprobs or () if entry is not None]
    return KVPrecision(kv_dtype or f"as {dtype}", engine.block_bytes // BLOCK_SIZE, nats)


def main() -> None:
    parser = script_parser("bench.engine.kv_precision", __doc__, model=True, json=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024, help="of each window")
    options = parser.parse_args()
    with errors_in_a_line():
        folder = prepared_dir(options.model)
        windows = windows_of(folder, options.windows, options.tokens)
        wide, narrow = (measure(folder, options.dtype, kv_dtype, windows) for kv_dtype in KV_DTYPES)
    cells = [[one.kv_dtype, f"{one.bytes_per_token}", f"{one.perplexity:.4f}"] for one in (wide, narrow)]
    print_table(f"{len(wide.nats)} tokens", ("KV",), ("bytes a token", "perplexity"), cells)
    most = max(abs(ours - theirs) for ours, theirs in zip(narrow.nats, wide.nats, strict=True))
    print(f"the largest difference of a token's log-probability: {most:.3f}")
    write_json(options.json, [wide, narrow])


if __name__ == "__main__":
    main()
