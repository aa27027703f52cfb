"""How much two engines of one machine slow each other down: steps alone, and beside another engine that computes.

A long answer decodes on one engine while prompts without answers follow each other on another one. The same requests
alone tell what is normal. Engines that never meet leave the factors at 1.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bench.live.http_load import Answer, Sending
from bench.live.lengths import TOKEN_IDS
from bench.live.mesh import LiveMesh

PROMPT, ANSWER, PROMPT_OF_ANSWER = 256, 96, 16
ROUNDS, PROMPTS_ALONE = 3, 2
MOST = 4.0  # times as long as alone; more is no sharing but a disturbance
BEGIN_S, APART = 0.4, 1.6  # the first prompt's delay; prompts' distance as a multiple of what they take alone


@dataclass(frozen=True, slots=True)
class Sharing:
    """Times as long as alone: steps of decodes beside a prefill, steps of prompts beside decodes."""

    decode: float = 1.0
    prefill: float = 1.0


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
    alone = [mesh.answers([_prompt(0.0, random)])[0] for _ in range(PROMPTS_ALONE)]
    [answer] = mesh.answers([_answer(random)])
    prompt_alone_s, answer_alone_s = min(map(_ttft_s, alone)), answer.last_s - answer.first_s
    num_prompts = max(1, int(1.3 * answer_alone_s / (APART * prompt_alone_s)))
    starts = [BEGIN_S + index * APART * prompt_alone_s for index in range(num_prompts)]
    long, *prompts = mesh.answers([_answer(random), *(_prompt(at_s, random) for at_s in starts)])
    beside = [prompt for prompt in prompts if prompt.headers.get("prefill") != long.headers.get("decode")]
    within = [prompt for prompt in beside if long.first_s <= prompt.sent_s and prompt.first_s <= long.last_s]
    if not within:
        return None
    covered_s, lost_s = _covered_s(beside, long), long.last_s - long.first_s - answer_alone_s
    decode = covered_s / max(covered_s - lost_s, covered_s / MOST)
    return Sharing(decode, statistics.median(map(_ttft_s, within)) / prompt_alone_s)


def _covered_s(prompts: Sequence[Answer], long: Answer) -> float:
    """Of the time between the answer's tokens, what had a prompt beside it; prompts in order of their sending."""
    covered_s, until_s = 0.0, long.first_s
    for prompt in prompts:
        begin_s, end_s = max(prompt.sent_s, until_s), min(prompt.first_s, long.last_s)
        covered_s += max(0.0, end_s - begin_s)
        until_s = max(until_s, end_s)
    return covered_s


def _ttft_s(answer: Answer) -> float:
    return answer.first_s - answer.sent_s


def _prompt(at_s: float, random: Random) -> Sending:
    return Sending(at_s, random.choices(TOKEN_IDS, k=PROMPT), 1)


def _answer(random: Random) -> Sending:
    return Sending(0.0, random.choices(TOKEN_IDS, k=PROMPT_OF_ANSWER), ANSWER)
