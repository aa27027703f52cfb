"""Requests of a size that a small model on a CPU serves: long inputs, short outputs, each with promises of its own."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean, median

from bench.live.http_load import Sending
from bench.live.lengths import Bounds
from bench.live.sharing import TOKEN_IDS
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_lengths

POOL = 2000  # requests that lengths are drawn from
TTFT_FACTOR, TPOT_FACTOR = 5.0, 3.0  # times what an idle engine takes


INPUT, OUTPUT = Bounds(64, 128, 1024, 0.9), Bounds(8, 16, 64, 0.7)


def made_up_lengths(random: Random) -> list[TraceRequest]:
    return [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]


def scaled_lengths(path: Path, random: Random) -> list[TraceRequest]:
    """Those of a file, with medians and bounds as if they were made up. Raise `TraceError`."""
    found = load_lengths(path)
    chosen = random.sample(found, min(POOL, len(found)))
    input_scale = INPUT.median / median(request.num_input for request in found)
    output_scale = OUTPUT.median / median(request.num_output for request in found)
    return [
        TraceRequest(0.0, INPUT.cut(request.num_input * input_scale), OUTPUT.cut(request.num_output * output_scale))
        for request in chosen
    ]


def promised(lengths: Sequence[TraceRequest], profile: EngineProfile) -> list[TraceRequest]:
    """With a TTFT SLO of 5 times the own prefill on an idle engine, and a TPOT SLO of 3 lonely decode steps."""
    context = round(fmean(request.num_input + request.num_output / 2 for request in lengths))
    tpot_s = TPOT_FACTOR * decode_step_s(profile.decode, 1, context)
    return [
        replace(request, slo_ttft_s=TTFT_FACTOR * prefill_s(profile.prefill, request.num_input), slo_tpot_s=tpot_s)
        for request in lengths
    ]


def make_trace(pool: Sequence[TraceRequest], rate: float, num_requests: int, seed: int) -> list[TraceRequest]:
    """Poisson arrivals. Equal seeds give the same requests in the same pattern at all rates."""
    return list(islice(synthesize(pool, Arrivals(rate), inf, Random(seed)), num_requests))


def sendings_of(trace: Sequence[TraceRequest], random: Random) -> list[Sending]:
    """Prompts of drawn tokens: engines have none of them in their caches."""
    return [
        Sending(
            request.at_s,
            random.choices(TOKEN_IDS, k=request.num_input),
            request.num_output,
            request.slo_ttft_s,
            request.slo_tpot_s,
        )
        for request in trace
    ]
