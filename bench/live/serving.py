"""Requests of a live mesh, and what their clients saw of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from random import Random

from bench.live.http_load import Answer, Sending
from bench.live.lengths import TOKEN_IDS
from simulation.loads.trace_request import TraceRequest

OK = 200


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one request, seconds. ``tpot_s`` is None for answers of one token."""

    ttft_s: float
    tpot_s: float | None
    e2e_s: float


def sendings_of(trace: Iterable[TraceRequest], random: Random) -> list[Sending]:
    """Give the requests prompts of random tokens, so that engines have none of them in their caches."""
    return [
        Sending(one.at_s, random.choices(TOKEN_IDS, k=one.num_input), one.num_output, one.slo_ttft_s, one.slo_tpot_s)
        for one in trace
    ]


def is_kept(request: TraceRequest, answer: Answer) -> bool:
    """Whether the request was served within its own SLOs. One that it does not have is kept."""
    latency = latency_of(answer, request.num_output)
    keeps_tpot = latency.tpot_s is None or latency.tpot_s <= (request.slo_tpot_s or inf)
    return answer.status == OK and latency.ttft_s <= (request.slo_ttft_s or inf) and keeps_tpot


def latency_of(answer: Answer, num_tokens: int) -> Latency:
    """As the client saw it."""
    tpot_s = (answer.last_s - answer.first_s) / (num_tokens - 1) if num_tokens > 1 else None
    return Latency(answer.first_s - answer.sent_s, tpot_s, answer.last_s - answer.sent_s)
