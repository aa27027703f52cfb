"""Loads for servers of this machine: requests of exact lengths, drawn and then sent by a client of `bench.load`."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from bench.load.client.http import Address
from bench.load.generator.crew import drive
from bench.load.generator.wire import Assignment, Pace, Piece, Recipe, Shape
from bench.load.prompts.wording import assumed
from bench.load.results.outcome import Outcome, Promise
from simulation.loads.trace_request import TraceRequest

ANSWER_S = 300.0  # that a client waits for one
ORDINARY = tuple(Piece("", (token,)) for token in range(100, 228))  # tokens that every vocabulary has
FIELDS = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "seed": 0, "ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Tokens. ``sigma`` is the standard deviation of the logarithm of lengths, which are drawn and then cut."""

    least: int
    median: int
    most: int
    sigma: float

    def draw(self, random: Random) -> int:
        return self.cut(random.lognormvariate(0, self.sigma) * self.median)

    def cut(self, length: float) -> int:
        return min(self.most, max(self.least, round(length)))


def token_prompts(seed: int) -> Recipe:
    """Completions of ordinary tokens. No two requests share a beginning, nor do requests of two seeds."""
    return Recipe("completions", sends_ids=True, seed=seed, fillers=ORDINARY, fields=FIELDS)


def word_chats(seed: int) -> Recipe:
    """Chats of common words, each of which counts as a token, whatever the server's tokenizer is."""
    return Recipe("chat", sends_ids=False, seed=seed, fillers=assumed(), fields=FIELDS)


def shapes_of(requests: Iterable[TraceRequest], model: str) -> list[Shape]:
    """Those without a service go to ``model``."""
    return [
        Shape(one.service or model, one.num_input, one.num_output, promise=Promise(one.slo_ttft_s, one.slo_tpot_s))
        for one in requests
    ]


def send(
    address: Address,
    recipe: Recipe,
    shapes: Sequence[Shape],
    pace: Pace,
    *,
    answer_s: float = ANSWER_S,
    keeps_text: bool = False,
    heard: Callable[[int], None] = lambda num_ended: None,
) -> list[Outcome]:
    """Return what became of the requests, in their order. ``heard`` is told now and then how many have ended.

    Promises go with requests as headers. Raise `CommandError` if the client process dies.
    """
    load = Assignment(address, {}, recipe, tuple(shapes), pace, answer_s, keeps_text=keeps_text, sends_promises=True)
    crew = asyncio.run(drive([load], asyncio.Event(), lambda crew: heard(len(crew.outcomes))))
    return sorted(crew.outcomes, key=lambda outcome: outcome.number)
