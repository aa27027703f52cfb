"""What surrounds computation, measured: HTTP and the gateway, an engine's process between steps, copies of KV blocks.

A mesh of the same shape whose engines wait fixed times instead of computing serves a few requests one after the other.
What they take longer than the simulator says is what the simulator leaves out.

Two engines of one machine slow each other down, too. A long answer decodes on one engine while prompts without answers
follow each other on another one. The same requests alone tell what is normal. Engines that never meet leave the factors
at 1.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tomli_w

from bench.fidelity.agreement import Latency
from bench.harness.machine import timed
from bench.live.mesh import LiveMesh, mesh_of
from bench.live.ports import free_port
from bench.load.results.outcome import Outcome
from bench.simulated import make_simulation, serve
from engines.costs.named_profiles import load_profile
from mesh.errors import UserError
from mesh.topology.schema import Topology
from router.history.records import Record
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import Profile
from simulation.loads.trace_request import TraceRequest

REQUESTS, PROMPT_TOKENS, NEW_TOKENS = 12, 32, 24
WARM_UP = 3  # requests that are not counted
PAUSE_S = 0.25
PROFILE = str(Path(__file__).with_name("flat.toml"))
COPY_BYTES, COPIES = 64 * 2**20, 5


@dataclass(frozen=True, slots=True)
class Overheads:
    """``request_s``: once a request, before its first token; ``step_s``: once a step of an engine."""

    request_s: float
    step_s: float
    kv_bytes_per_s: float


def measure_overheads(topology: Topology) -> Overheads:
    """Takes ten seconds or so. The machine should have nothing else to do."""
    profile = load_profile(PROFILE)
    apart_s = profile.prefill.fixed_s + NEW_TOKENS * profile.decode.fixed_s + PAUSE_S
    trace = [TraceRequest(number * apart_s, PROMPT_TOKENS, NEW_TOKENS) for number in range(REQUESTS)]
    with mesh_of(tomli_w.dumps(_tables(topology))) as mesh:
        answers = mesh.answers(trace, seed=0)
    profiles = {engine.id: profile for engine in mesh.topology.engines}
    records = simulate(mesh.topology, profiles, trace, Physics())
    return _compare((answer, records[f"r{answer.number}"]) for answer in answers[WARM_UP:])


def simulate(
    topology: Topology, profiles: Mapping[str, Profile], trace: Sequence[TraceRequest], physics: Physics
) -> dict[str, Record]:
    """By request: ``r0``, ``r1``, ... in the trace's order. Promises are the trace's, else the service's."""
    simulation = make_simulation(topology, profiles, 0, physics=physics)
    return {record.id: record for record in serve(simulation, topology.services[0].name, trace)}


def _compare(pairs: Iterable[tuple[Outcome, Record]]) -> Overheads:
    to_first, to_last = [], []
    for outcome, record in pairs:
        assert record.ttft_s is not None
        assert record.e2e_s is not None
        seen = Latency.of(outcome)
        to_first.append(seen.ttft_s - record.ttft_s)
        to_last.append((seen.e2e_s - seen.ttft_s) - (record.e2e_s - record.ttft_s))
    step_s = max(0.0, statistics.median(to_last) / (NEW_TOKENS - 1))
    return Overheads(max(0.0, statistics.median(to_first) - step_s), step_s, copy_bytes_per_s())


def copy_bytes_per_s() -> float:
    """Of one thread that copies memory which it has written before, the fastest of a few."""
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)
    return COPY_BYTES / min(timed(partial(np.copyto, target, source)) for _ in range(COPIES))


def _tables(topology: Topology) -> dict[str, Any]:
    """The same engines and policy, promises that nothing breaks."""
    service, waiting = topology.services[0], {"backend": "simulated", "profile": PROFILE}
    return {
        "services": {service.name: {"model": service.model, "ttft_ms": 60000, "tpot_ms": 60000}},
        "policy": {"name": topology.policy.name},
        "gateways": {"gateway": {"port": free_port()}},
        "engines": {engine.id: {"role": str(engine.role), **waiting} for engine in topology.engines},
    }


# --- engines of one machine -------------------------------------------------------------------------------------------

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
