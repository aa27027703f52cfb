"""Conversations on a live mesh whose KV does not fit into its engine's memory: with KV tiers and without.

    python -m bench.engine.kv_tiers [--arms off,host,both] [--sessions 4] [--turns 5] [--pool 160MiB] [--room 1GiB]
    python -m bench.engine.kv_tiers --arms off,host,both,vllm --vllm-python PATH

Each turn of a conversation repeats its prompt and adds to it, and all conversations take turns. A turn comes when the
blocks of the turn before have left the engine's memory, unless ``--pool`` holds them all. Each arm is a mesh of its own
with one engine and empty tiers. ``off`` has no tiers and computes each prompt anew; ``host`` has room for all in the
host's memory; ``both`` for an eighth, and for all on disk. ``peers`` has two engines with room for all and no tier to
speak of: each turn is the other engine's, which pulls what the first has. ``vllm`` is `vllm serve` with its prefix
cache, in one thread and float32, with KV memory for as many tokens as ``off``.

All arms run at once, and take turns with each turn of the conversations, of which there are new ones each round. So
what else the machine does falls on all of them, and an arm is compared with the first one turn by turn, by the clock
and by its engines' CPU time.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from bench.engine.tier_arms import ARMS, Arm, running
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.live.servers import MODEL
from bench.models.random_llama import add_random_argument, random_model
from mesh.errors import CommandError

TOKENS = range(100, 228)  # that every vocabulary has
PATIENCE_S = 600.0
STORED_S = 1.0  # in which an idle engine stores what is new


@dataclass(slots=True)
class Measured:
    """What one mesh did. Lists are by turn, of all rounds."""

    arm: str
    ttft_s: list[list[float]] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)  # tokens of prompts that were not computed
    elapsed_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)  # of what computes
    engines: list[dict[str, Any]] = field(default_factory=list)  # rows of `mesh status`, in the end

    def last_ttft_s(self, num_turns: int) -> float:
        """Return the median over the last turns of all rounds."""
        return median(ttft_s for turn in self.ttft_s[num_turns - 1 :: num_turns] for ttft_s in turn)

    def blocks(self, what: str) -> int:
        """Blocks that all engines ``loaded`` from tiers, or ``stored`` in them."""
        return sum(tier[f"{what}_blocks"] for engine in self.engines for tier in engine["tiers"].values())


def conversations(options: argparse.Namespace, seed: int) -> list[list[list[int]]]:
    """The prompts of each: by turn, token ids."""
    lengths = [options.first + turn * options.turn_tokens for turn in range(options.turns)]
    talks = [Random(f"{seed} {number}").choices(TOKENS, k=lengths[-1]) for number in range(options.sessions)]
    return [[talk[:length] for length in lengths] for talk in talks]


def measure(options: argparse.Namespace, names: Sequence[str]) -> list[Measured]:
    """Play all rounds in arms that run at once."""
    found = [Measured(name) for name in names]
    with ExitStack() as stack:
        arms = [stack.enter_context(running(options, name)) for name in names]
        for arm in arms:
            _send(arm.port, [1] * 64, 8)  # the first request
        both = list(zip(arms, found, strict=True))
        for number in range(options.rounds):
            talks = conversations(options, number)
            for turn in range(options.turns):
                prompts = [talk[turn] for talk in talks]
                for arm, measured in both if (number * options.turns + turn) % 2 == 0 else reversed(both):
                    arm.begin_turn(turn)
                    _play(arm, options, prompts, measured)
                    time.sleep(STORED_S)
            print(f"round {number + 1} of {options.rounds} done", flush=True)
        for arm, measured in both:
            measured.engines = arm.engines()
    return found


def _play(arm: Arm, options: argparse.Namespace, prompts: Sequence[Sequence[int]], measured: Measured) -> None:
    """Play a turn of all conversations."""
    used_s, started = arm.cpu_s(), time.perf_counter()
    with ThreadPoolExecutor(options.at_once) as clients:
        answers = list(clients.map(lambda prompt: _send(arm.port, prompt, options.answer), prompts))
    measured.elapsed_s.append(time.perf_counter() - started)
    measured.cpu_s.append(arm.cpu_s() - used_s)
    measured.ttft_s.append([ttft_s for ttft_s, _ in answers])
    measured.cached.append(sum(cached for _, cached in answers))


def rows(found: Sequence[Measured], num_turns: int) -> Iterator[Sequence[str]]:
    """Each arm beside the first one."""
    first = found[0]
    for one in found:
        rates = _ratios(first.elapsed_s, one.elapsed_s)
        yield (
            one.arm,
            f"{one.last_ttft_s(num_turns):.3f}",
            f"{one.last_ttft_s(num_turns) / first.last_ttft_s(num_turns):.3f}",
            f"{sum(one.elapsed_s):.1f}",
            f"{median(rates):.3f} ({min(rates):.2f} to {max(rates):.2f})",
            f"{median(_ratios(first.cpu_s, one.cpu_s)):.3f}",
            f"{sum(one.cached)}",
            f"{one.blocks('loaded')}",
            f"{one.blocks('stored')}",
        )


def _ratios(first: Sequence[float], other: Sequence[float]) -> list[float]:
    return [one / its for one, its in zip(first, other, strict=True)]


def _send(port: int, prompt: Sequence[int], max_tokens: int) -> tuple[float, int]:
    """Seconds to the first token, and the tokens of the prompt that were not computed."""
    body = {"model": MODEL, "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    started, first, cached = time.perf_counter(), None, 0
    url = f"http://127.0.0.1:{port}/v1/completions"
    with httpx.stream("POST", url, json=body, timeout=PATIENCE_S) as response:
        if response.status_code != 200:
            raise CommandError(f"{url}: {response.status_code}: {response.read().decode()}")
        for line in response.iter_lines():
            if line.startswith("data: {") and first is None:
                first = time.perf_counter()
            if '"cached_tokens"' in line:
                cached = int(line.split('"cached_tokens":')[1].split("}")[0].split(",")[0])
    if first is None:
        raise CommandError(f"{url}: no token came")
    return first - started, cached


def main() -> None:
    parser = script_parser("bench.engine.kv_tiers", __doc__, model=True, vllm=True, rounds=1, json=True)
    add_random_argument(parser)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--first", type=int, default=1200, help="tokens of the first turn's prompt (default: 1200)")
    parser.add_argument("--turn-tokens", type=int, default=200, help="that each turn adds (default: 200)")
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--pool", default="160MiB", help="KV memory of the engine (default: 160MiB)")
    parser.add_argument("--room", default="1GiB", help="of tiers, for all conversations (default: 1GiB)")
    parser.add_argument("--at-once", type=int, default=1, help="requests in flight (default: 1)")
    parser.add_argument("--arms", default="off,host,both", help=f"of {', '.join(ARMS)} (default: off,host,both)")
    parser.add_argument("--device", default="cpu", help="of the engines (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="of weights and KV (default: float32)")
    options = parser.parse_args()
    with errors_in_a_line(), TemporaryDirectory() as name:
        options.model = random_model(options, Path(name)) or options.model
        found = measure(options, options.arms.split(","))
    beside = f"beside {found[0].arm}"
    columns = ("TTFT of the last turn, s", beside, "all, s", f"rate {beside}, of turns", "in CPU time", "cached tokens")
    print_table("Conversations", ("tiers",), (*columns, "loaded", "stored"), rows(found, options.turns), 140)
    write_json(options.json, [asdict(one) for one in found])


if __name__ == "__main__":
    main()
