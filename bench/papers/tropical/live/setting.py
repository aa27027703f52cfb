"""Meshes of two small engines that differ in roles and chunks, and requests of a size that a CPU serves."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

from bench.live.lengths import Bounds
from bench.live.ports import free_port
from bench.papers.live import patient_mesh, turned
from bench.papers.tropical.setting import UNSPLIT
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.profiles import EngineProfile
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Topology
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest

POLICIES = ("colocated", "chunked", "disaggregated", "disaggregated_sjf", "tropical", "elastic")
CHUNK_TOKENS = {"chunked": 64}  # chunked prefill has a budget of its own; the others compute prompts in large steps:
LARGE_STEP = 256
POOL = 2000  # requests that lengths are sampled from
INPUT, OUTPUT = Bounds(64, 128, 1024, 0.9), Bounds(8, 16, 64, 0.7)
TTFT_FACTOR, TPOT_FACTOR = 5.0, 3.0  # times what an idle engine takes


@dataclass(frozen=True, slots=True)
class Fleet:
    """A prefill and a multiplexing engine if it ``splits``, else two multiplexing ones; one thread each.

    They refuse nobody, as the systems that baselines stand for would not.
    """

    splits: bool
    chunk_tokens: int

    def write(self, folder: Path, service: ServiceSpec) -> Topology:
        name = f"{'split' if self.splits else 'alike'}-{self.chunk_tokens}"
        lines = [f"[services.{json.dumps(service.name)}]", f"model = {json.dumps(service.model)}"]
        lines += ["min_ttft_ms = 1\nmin_tpot_ms = 1"]
        lines += [f'dtype = "{service.dtype}"', f"[gateways.gateway]\nport = {free_port()}"]
        for engine, role in (("first", "prefill" if self.splits else "multiplex"), ("second", "multiplex")):
            lines += [f'[engines.{engine}]\nrole = "{role}"', f"chunk_tokens = {self.chunk_tokens}"]
            lines += ['threads = 1\nkv_memory = "256MiB"', "max_running = 32\nmax_waiting = 100000"]
        path = folder / f"{name}.toml"
        path.write_text("\n".join([patient_mesh(f"live-{name}"), *lines, ""]))
        return load(path)


FLEETS = {policy: Fleet(policy not in UNSPLIT, CHUNK_TOKENS.get(policy, LARGE_STEP)) for policy in POLICIES}

# --- requests ---------------------------------------------------------------------------------------------------------


def made_up_lengths(random: Random) -> list[TraceRequest]:
    """Draw long inputs and short outputs."""
    return [TraceRequest(0.0, INPUT.draw(random), OUTPUT.draw(random)) for _ in range(POOL)]


def promised(lengths: Sequence[TraceRequest], profile: EngineProfile) -> list[TraceRequest]:
    """Promise a TTFT of 5 times the own prefill on an idle engine, and a TPOT of 3 lonely decode steps."""
    context = round(fmean(request.num_input + request.num_output / 2 for request in lengths))
    tpot_s = TPOT_FACTOR * decode_step_s(profile.decode, 1, context)
    return [
        replace(request, slo_ttft_s=TTFT_FACTOR * prefill_s(profile.prefill, request.num_input), slo_tpot_s=tpot_s)
        for request in lengths
    ]


def make_trace(pool: Sequence[TraceRequest], rate: float, num_requests: int, seed: int) -> list[TraceRequest]:
    """Draw Poisson arrivals. Equal seeds give the same requests in the same pattern at all rates."""
    return list(islice(synthesize(pool, Arrivals(rate), inf, Random(seed)), num_requests))


@dataclass(frozen=True, slots=True)
class Turn:
    """One policy at one rate. Turns of one round and rate have the same requests, of other tokens."""

    policy: str
    rate: float
    trace: Sequence[TraceRequest]
    seed: str  # of tokens


def make_turns(pool: Sequence[TraceRequest], rates: Sequence[float], rounds: int, num_requests: int) -> Iterator[Turn]:
    for number in range(rounds):
        for index, rate in enumerate(rates):
            trace = make_trace(pool, rate, num_requests, number)
            for policy in turned(POLICIES, number * len(rates) + index):
                yield Turn(policy, rate, trace, f"{number} {rate} {policy}")
