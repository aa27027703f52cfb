"""Decode rates with speculation and without, of the torch engine and of vLLM's CPU build with its n-grams.

    python -m bench.peers.speculation [--vllm-python PATH] [--model REFERENCE] [--dtype float32] [--rounds 3]
        [--requests 1,4,16] [--only NAME ...] [--json FILE]

Prompts ask the model to copy a text, to write code again, to chat, or for JSON by a schema (ours alone). All engines
are loaded at once and take turns, case by case, so that what else the machine does falls on all of them; ratios are
medians over the rounds. Answers are greedy and equally long, and a rate is that of all requests together while all
decode, in seconds of the engine's CPU time: what waits for other programs does not count. JSON is measured by the
clock, as another process follows its grammar; its steps do not depend on what else the machine does.
Linux only: processes are pinned to one core.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from bench.harness.arguments import add_names, number_list, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.peers.engines import CORE_MODULE, ENVIRONMENT, VLLM_MODULE, vllm_environment
from bench.peers.rounds import ROOT, Child, Command, Measured, Round, children
from engines.models.store import prepared_dir
from engines.models.text.chat_template import Chat
from engines.models.text.tokenizer import Tokenizer
from router.api.openai.input.bodies import SamplingBody, StructuredOutputs
from router.api.openai.input.grammars import grammar_of as grammar_of_body

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
SCHEMA = {
    "type": "array",
    "minItems": 8,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age_in_years": {"type": "integer", "minimum": 0, "maximum": 120},
            "favourite_city": {"type": "string", "maxLength": 12},
            "is_member": {"type": "boolean"},
        },
        "required": ["name", "age_in_years", "favourite_city", "is_member"],
        "additionalProperties": False,
    },
}
COPY, AGAIN, TALK, FORM = "copying", "code", "chat", "JSON"
OURS, OURS_ON, VLLM, VLLM_ON = "ours", "ours, drafts", "vLLM", "vLLM, n-grams"
PAIRS = ((OURS, OURS_ON), (VLLM, VLLM_ON))  # without speculation, and with it


@dataclass(frozen=True, slots=True)
class PromptCase:
    """So many requests of a kind at once."""

    kind: str
    num_requests: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.num_requests}"


KINDS = (COPY, AGAIN, TALK, FORM)

Rates = dict[str, dict[str, list[float]]]  # by engine and case, one a round


@dataclass(slots=True)
class SpeedsFound:
    """What was measured. ``steps``: in which all requests of a case decoded, by engine and case, one a round."""

    rates: Rates = field(default_factory=dict)
    steps: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def add(self, engine: str, case: str, measured: Measured) -> None:
        """Note a round in which all decoded at once."""
        if measured.decode_rate is not None:
            self.rates.setdefault(engine, {}).setdefault(case, []).append(measured.decode_rate)
            self.steps.setdefault(engine, {}).setdefault(case, []).append(measured.num_steps)


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
    if kind == FORM:
        return f"Write a list of {8 + number} people in JSON, with name, age, city and membership."
    return QUESTIONS[number % len(QUESTIONS)]


def grammar_of(kind: str) -> str:
    """Return the grammar of answers, as the API makes it of a schema; empty: they are free."""
    if kind != FORM:
        return ""
    grammar = grammar_of_body(SamplingBody(structured_outputs=StructuredOutputs(json_=SCHEMA)))
    assert grammar is not None, "a schema was given"
    return grammar.text


def commands(options: argparse.Namespace) -> dict[str, Command]:
    """Of each engine that is asked for."""
    folder, found = str(prepared_dir(options.model)), dict[str, Command]()
    for name, speculation in ((OURS, ""), (OURS_ON, "prompt_lookup")):
        found[name] = ([sys.executable, "-m", CORE_MODULE, folder, options.dtype, speculation], ENVIRONMENT)
    if options.vllm_python is not None:
        child = [str(options.vllm_python), "-m", VLLM_MODULE, folder, "eager", options.dtype]
        own = vllm_environment(options)
        found |= {VLLM: (child, own), VLLM_ON: ([*child, "ngram"], own)}
    return {name: command for name, command in found.items() if name in options.only}


def take_turns(engines: Sequence[Child], cases: Sequence[PromptCase], options: argparse.Namespace) -> SpeedsFound:
    """Each case in each engine, once a round, after a short one that warms up."""
    tokenizer, found = Tokenizer.load(prepared_dir(options.model)), SpeedsFound()
    for turn in range(options.rounds + 1):
        for case in cases if turn else cases[:1]:
            given = prompts(case, tokenizer)
            grammar = grammar_of(case.kind)
            work = Round(case.num_requests, len(given[0]), NEW_TOKENS, turn, given, not grammar, grammar)
            for child in engines:
                if grammar and child.name not in (OURS, OURS_ON):
                    continue
                measured = child.measure(work)
                print(f"{child.name}, {case}: {measured}, {measured.num_steps} steps", file=sys.stderr)
                if turn:
                    found.add(child.name, str(case), measured)
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
    cases = [PromptCase(kind, number) for kind in options.kinds for number in options.requests]
    os.sched_setaffinity(0, {options.core})  # the children inherit it
    own = commands(options)
    with children(own, own.__getitem__) as engines:
        found = take_turns(engines, cases, options)
    numbers = [*found.rates, *(f"{drafting} / {plain}" for plain, drafting in PAIRS)]
    print_table("decode, tokens/s (steps)", ("",), numbers, (_cells(found, case) for case in map(str, cases)))
    write_json(options.json, asdict(found))


def _cells(found: SpeedsFound, case: str) -> list[str]:
    known, medians = ratios(found.rates, case), [_medians(found, name, case) for name in found.rates]
    return [case, *medians, *(f"{known[one]:.2f}x" if one in known else "-" for _, one in PAIRS)]


def _medians(found: SpeedsFound, name: str, case: str) -> str:
    rates = found.rates[name].get(case)
    return "-" if not rates else f"{statistics.median(rates):.1f} ({statistics.median(found.steps[name][case]):.0f})"


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.speculation", __doc__, model=True, vllm=True, rounds=3, json=True)
    parser.add_argument("--dtype", default="float32", help="of all engines; int8 is ours alone")
    parser.add_argument("--requests", type=number_list, default=NUM_REQUESTS, metavar="1,4", help="at once")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help="of prompts")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core all run on")
    add_names(parser, "--only", (name for pair in PAIRS for name in pair))
    return parser.parse_args()


if __name__ == "__main__":
    main()
