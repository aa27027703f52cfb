"""Quality of the int8 mode against float32 on a fixed text: perplexity, and agreement on the likeliest token.

    python -m bench.engine.int8_quality [--model REFERENCE] [--tokens 2048] [--json FILE]

The text comes with Python: an essay of `heapq` and documentation of the standard library.
"""

import argparse
import heapq
import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer

from bench.engine.under_test import EngineUnderTest, add_model_argument
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from engines.models.store import prepared_dir
from engines.scheduling.batch import Chunk
from mesh.wire.requests import TokenLogprobs

WINDOW = 512  # tokens of context at most


@dataclass(frozen=True, slots=True)
class Quality:
    """Int8 against float32. ``agreement``: share of places with the same likeliest token after the same text."""

    num_tokens: int
    perplexity_float32: float
    perplexity_int8: float
    agreement: float


def text() -> str:
    essay: str = heapq.__about__
    documents = [module.__doc__ or "" for module in (argparse, statistics, json, heapq)]
    return "\n\n".join([essay, *documents])


def score(engine: EngineUnderTest, tokens: list[int]) -> list[TokenLogprobs]:
    """Log-probabilities of all tokens that have a predecessor in their window."""
    scored: list[TokenLogprobs] = []
    for first in range(0, len(tokens), WINDOW):
        window = tokens[first : first + WINDOW]
        chunk = Chunk("text", window, 0, engine.blocks(0, len(window)), prompt_logprobs=1)
        [result] = engine.execute([chunk]).chunks
        scored += [entry for entry in result.prompt_logprobs or () if entry is not None]
    return scored


def perplexity(scored: list[TokenLogprobs]) -> float:
    return math.exp(-statistics.fmean(entry.logprob for entry in scored))


def compare(folder: Path, num_tokens: int) -> Quality:
    tokens = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text()).ids[:num_tokens]
    exact, fast = (score(EngineUnderTest(folder, dtype, max_tokens=WINDOW), tokens) for dtype in ("float32", "int8"))
    same = [a.top[0][0] == b.top[0][0] for a, b in zip(exact, fast, strict=True)]
    return Quality(len(exact), perplexity(exact), perplexity(fast), statistics.fmean(same))


def main() -> None:
    parser = script_parser("bench.engine.int8_quality", __doc__)
    add_model_argument(parser)
    parser.add_argument("--tokens", type=int, default=2048, help="how much of the text")
    add_json(parser)
    arguments = parser.parse_args()
    quality = compare(prepared_dir(arguments.model), arguments.tokens)
    print(f"tokens scored        {quality.num_tokens}")
    print(f"perplexity float32   {quality.perplexity_float32:.3f}")
    print(f"perplexity int8      {quality.perplexity_int8:.3f}")
    print(f"same likeliest token {quality.agreement:.1%}")
    if arguments.json:
        write_json(arguments.json, asdict(quality))


if __name__ == "__main__":
    main()
