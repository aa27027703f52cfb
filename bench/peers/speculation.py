"""Decode rates with speculation and without, of the torch engine and of vLLM's CPU build with its n-grams.

    python -m bench.peers.speculation [--vllm-python PATH] [--model REFERENCE] [--dtype float32] [--rounds 3]
        [--requests 1,4,16] [--only NAME ...] [--json FILE]

Prompts ask the model to copy a text, to write code again, or to chat. All engines are loaded at once and take turns,
case by case, so that what else the machine does falls on all of them; ratios are medians over the rounds. Answers are
greedy and equally long, and a rate is that of all requests together while all decode, in seconds of the engine's CPU
time: what waits for other programs does not count. Linux only: processes are pinned to one core.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.engine.under_test import add_model_argument
from bench.harness.arguments import add_json, add_vllm, number_list, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.peers.engines import CORE_MODULE, VLLM_ENVIRONMENT, VLLM_MODULE
from bench.peers.rounds import ROOT, Child, ChildError, Round
from engines.models.store import prepared_dir
from engines.models.text.chat_template import Chat
from engines.models.text.tokenizer import Tokenizer

NUM_REQUESTS = (1, 4, 16)
NEW_TOKENS = 48
TEXTS = ROOT / "docs/concepts/request-life.md"
CODE = ROOT / "engines/costs/pace.py"
QUESTIONS = (
    "Tell me how volcanoes erupt.",
    "Why is the sky blue?",
    "What should I cook for six guests?",
    "Explain how a bicycle stays upright.",
)
COPY, AGAIN, TALK = "copying", "code", "chat"
OURS, OURS_ON, VLLM, VLLM_ON = "ours", "ours, drafts", "vLLM", "vLLM, n-grams"
PAIRS = ((OURS, OURS_ON), (VLLM, VLLM_ON))  # without speculation, and with it


@dataclass(frozen=True, slots=True)
class PromptCase:
    """So many requests of a kind at once."""

    kind: str
    num_requests: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.num_requests}"


KINDS = (COPY, AGAIN, TALK)

Rates = Mapping[str, Mapping[str, Sequence[float]]]  # by engine and case, one a round


def prompts(case: PromptCase, tokenizer: Tokenizer) -> list[list[int]]:
    """Tokens of one prompt a request."""
    texts = [text_of(case.kind, number) for number in range(case.num_requests)]
    return [list(tokenizer.encode_chat(Chat([{"role": "user", "content": text}]))) for text in texts]


def text_of(kind: str, number: int) -> str:
    if kind == COPY:
        paragraphs = [part for part in TEXTS.read_text().split("\n\n") if 300 < len(part) < 900 and "|" not in part]
        part = paragraphs[number % len(paragraphs)]
        return f"Repeat this text word by word, and write nothing else:\n\n{part}"
    if kind == AGAIN:
        return f"Add a comment to this code and write all of it again, version {number}:\n\n{CODE.read_text()}"
    return QUESTIONS[number % len(QUESTIONS)]


def commands(options: argparse.Namespace) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Command and environment of each engine that is asked for."""
    folder = str(prepared_dir(options.model))
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    found = {}
    for name, speculation in ((OURS, ""), (OURS_ON, "prompt_lookup")):
        found[name] = ([sys.executable, "-m", CORE_MODULE, folder, options.dtype, speculation], environment)
    if options.vllm_python is not None:
        child = [str(options.vllm_python), "-m", VLLM_MODULE, folder, "eager", options.dtype]
        own = environment | VLLM_ENVIRONMENT | {"VLLM_CPU_OMP_THREADS_BIND": str(options.core)} | dict(options.vllm_env)
        found |= {VLLM: (child, own), VLLM_ON: ([*child, "ngram"], own)}
    return {name: command for name, command in found.items() if name in options.only}


def take_turns(children: Sequence[Child], cases: Sequence[PromptCase], options: argparse.Namespace) -> Rates:
    """Each case in each engine, once a round, after a short one that warms up."""
    tokenizer, found = Tokenizer.load(prepared_dir(options.model)), dict[str, dict[str, list[float]]]()
    for turn in range(options.rounds + 1):
        for case in cases if turn else cases[:1]:
            given = prompts(case, tokenizer)
            work = Round(case.num_requests, len(given[0]), NEW_TOKENS, turn, given, in_cpu_time=True)
            for child in children:
                rate = child.measure(work).decode_rate
                print(f"{child.name}, {case}: {rate or 0.0:.1f} tokens/s", file=sys.stderr)
                if turn and rate is not None:
                    found.setdefault(child.name, {}).setdefault(str(case), []).append(rate)
    return found


def ratios(rates: Rates, case: str) -> dict[str, float]:
    """By engine with speculation: how many times as fast as without, the median over the rounds."""
    found = {}
    for plain, drafting in PAIRS:
        pairs = list(zip(rates.get(plain, {}).get(case, ()), rates.get(drafting, {}).get(case, ()), strict=False))
        if pairs:
            found[drafting] = statistics.median(on / off for off, on in pairs)
    return found


def main() -> None:
    options = _parse()
    cases = [PromptCase(kind, number) for kind in KINDS for number in options.requests]
    os.sched_setaffinity(0, {options.core})  # the children inherit it
    with ExitStack() as stack:
        logs, children = Path(stack.enter_context(tempfile.TemporaryDirectory())), list[Child]()
        for name, command in commands(options).items():
            try:
                child = Child(name, *command, logs / name)
                stack.callback(child.stop)
                child.until_ready()
                children.append(child)
            except ChildError as error:
                print(f"without it: {error}", file=sys.stderr)
        rates = take_turns(children, cases, options)
    made = make_table(
        "decode, tokens a second of CPU", ("",), [*rates, *(f"{drafting} / {plain}" for plain, drafting in PAIRS)]
    )
    for case in map(str, cases):
        medians = [f"{statistics.median(by_case[case]):.1f}" if case in by_case else "-" for by_case in rates.values()]
        known = ratios(rates, case)
        made.add_row(case, *medians, *(f"{known[one]:.2f}x" if one in known else "-" for _, one in PAIRS))
    make_console().print(made)
    write_json(options.json, rates)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.speculation", __doc__)
    add_model_argument(parser)
    add_vllm(parser)
    parser.add_argument("--dtype", default="float32", help="of all engines; int8 is ours alone")
    parser.add_argument("--requests", type=number_list, default=NUM_REQUESTS, metavar="1,4", help="at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all run on")
    names = [name for pair in PAIRS for name in pair]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {'; '.join(names)}"
    )
    add_json(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main()
