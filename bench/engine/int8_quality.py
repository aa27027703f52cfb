"""Quality of the int8 mode against float32 on a fixed text: perplexity, and agreement on the likeliest token.

    python -m bench.engine.int8_quality [--model REFERENCE] [--tokens 2048]

The text comes with Python: an essay of `heapq` and documentation of the standard library.
"""

import argparse
import heapq
import json
import math
import statistics
from collections.abc import Sequence

from tokenizers import Tokenizer

from bench.engine.under_test import EngineUnderTest, add_model_argument
from bench.harness.arguments import script_parser
from engines.models.store import prepared_dir
from engines.scheduling.batch import Chunk
from mesh.wire.requests import TokenLogprobs

WINDOW = 512  # tokens of context at most
DOCUMENTED = (argparse, statistics, json, heapq)


def score(engine: EngineUnderTest, tokens: Sequence[int]) -> list[TokenLogprobs]:
    """Log-probabilities of all tokens that have a predecessor in their window."""
    scored: list[TokenLogprobs] = []
    for first in range(0, len(tokens), WINDOW):
        window = tokens[first : first + WINDOW]
        chunk = Chunk("text", window, 0, engine.blocks(0, len(window)), prompt_logprobs=1)
        [result] = engine.execute([chunk]).chunks
        scored += [entry for entry in result.prompt_logprobs or () if entry is not None]
    return scored


def perplexity(scored: Sequence[TokenLogprobs]) -> float:
    return math.exp(-statistics.fmean(entry.logprob for entry in scored))


def main() -> None:
    parser = script_parser("bench.engine.int8_quality", __doc__)
    add_model_argument(parser)
    parser.add_argument("--tokens", type=int, default=2048, help="how much of the text")
    arguments = parser.parse_args()
    folder = prepared_dir(arguments.model)
    text = "\n\n".join([heapq.__about__, *(str(module.__doc__) for module in DOCUMENTED)])
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[: arguments.tokens]
    exact, fast = (score(EngineUnderTest(folder, dtype, max_tokens=WINDOW), tokens) for dtype in ("float32", "int8"))
    same = statistics.fmean(a.top[0][0] == b.top[0][0] for a, b in zip(exact, fast, strict=True))
    print(f"{len(exact)} tokens: the likeliest one is the same in {same:.1%} of the places")
    print(f"perplexity: float32 {perplexity(exact):.3f}, int8 {perplexity(fast):.3f}")


if __name__ == "__main__":
    main()
