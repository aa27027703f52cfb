"""How much two engines of one machine slow each other down: steps alone, and beside another engine that computes.

A long answer decodes on one engine while prompts without answers follow each other on another one. The same requests
alone tell what is normal. Engines that never meet leave the factors at 1.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bench.live.mesh import LiveMesh
from bench.load.results.outcome import Outcome
from mesh.errors import UserError
from simulation.loads.trace_request import TraceRequest

PROMPT, ANSWER, PROMPT_OF_ANSWER = 256, 96, 16  # tokens
LONG = TraceRequest(0.0, PROMPT_OF_ANSWER, ANSWER)
ROUNDS, PROMPTS_ALONE = 3, 2
MOST = 4.0  # times as long as alone; more is no sharing but a disturbance
BEGIN_S, APART = 0.4, 1.6  # the first prompt's delay; prompts' distance as a multiple of what they take alone


@dataclass(frozen=True, slots=True)
class Sharing:
    """Times as long as alone: steps of decodes beside a prefill, steps of prompts beside decodes."""

    decode: float = 1.0
    prefill: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """When a request was sent and its tokens came, in seconds, and the engines that it was on."""

    sent_s: float
    first_s: float
    last_s: float
    engines: Mapping[str, str]  # ``prefill`` and ``decode``

    @classmethod
    def of(cls, outcome: Outcome) -> "Answer":
        """Raise `UserError` if it is not whole."""
        if outcome.first_s is None or outcome.last_s is None:
            raise UserError(f"a request was not served: {outcome.reason}")
        return cls(outcome.sent_s, outcome.first_s, outcome.last_s, outcome.headers)

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s

    @property
    def decoding_s(self) -> float:
        return self.last_s - self.first_s


def measure_sharing(mesh: LiveMesh, random: Random) -> Sharing:
    """Medians of a few rounds, half a minute in all."""
    rounds = [_measure_round(mesh, random) for _ in range(ROUNDS)]
    factors = [one for one in rounds if one is not None]
    if not factors:
        return Sharing()
    decode = statistics.median(one.decode for one in factors)
    return Sharing(max(1.0, decode), max(1.0, statistics.median(one.prefill for one in factors)))


def _measure_round(mesh: LiveMesh, random: Random) -> Sharing | None:
    """None if the two kinds of requests did not run on two engines at the same time."""

    def served(*requests: TraceRequest) -> list[Answer]:
        return [Answer.of(outcome) for outcome in mesh.answers(requests, random.getrandbits(32))]

    prompt_alone_s = min(served(_prompt(0.0))[0].ttft_s for _ in range(PROMPTS_ALONE))
    [alone] = served(LONG)
    num_prompts = max(1, int(1.3 * alone.decoding_s / (APART * prompt_alone_s)))
    starts = [BEGIN_S + index * APART * prompt_alone_s for index in range(num_prompts)]
    long, *prompts = served(LONG, *map(_prompt, starts))
    beside = [prompt for prompt in prompts if prompt.engines.get("prefill") != long.engines.get("decode")]
    within = [prompt for prompt in beside if long.first_s <= prompt.sent_s and prompt.first_s <= long.last_s]
    if not within:
        return None
    covered_s, lost_s = _covered_s(beside, long), long.decoding_s - alone.decoding_s
    decode = covered_s / max(covered_s - lost_s, covered_s / MOST)
    return Sharing(decode, statistics.median(prompt.ttft_s for prompt in within) / prompt_alone_s)


def _covered_s(prompts: Sequence[Answer], long: Answer) -> float:
    """Of the time between the answer's tokens, what had a prompt beside it; prompts in order of their sending."""
    covered_s, until_s = 0.0, long.first_s
    for prompt in prompts:
        begin_s, end_s = max(prompt.sent_s, until_s), min(prompt.first_s, long.last_s)
        covered_s += max(0.0, end_s - begin_s)
        until_s = max(until_s, end_s)
    return covered_s


def _prompt(at_s: float) -> TraceRequest:
    return TraceRequest(at_s, PROMPT, 1)
