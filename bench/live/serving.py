"""Serves a load on a live mesh and keeps what came of it, beside what tells how steady the machine was."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TypeVar

import msgspec

from bench.live.agreement import Latency
from bench.live.contention import Contention, Watch
from bench.live.http_load import Answer, Sending
from bench.live.mesh import LiveMesh
from bench.live.sharing import TOKEN_IDS, Sharing, measure_sharing
from mesh.wire.status import DecodeCost, PrefillCost
from simulation.loads.trace_request import TraceRequest

OK, TOO_MANY = 200, 429
ANSWERS_A_SAMPLE = 10  # of learnt costs
PROBES, PROBE_PROMPT, PROBE_ANSWER, PROBE_GAP_S = 3, 128, 16, 3.0

CostT = TypeVar("CostT", PrefillCost, DecodeCost)
Learnt = Mapping[str, tuple[PrefillCost, DecodeCost]]  # by engine


@dataclass(frozen=True, slots=True)
class Workload:
    """Poisson arrivals; lengths in tokens, drawn evenly between bounds."""

    num_requests: int
    rate: float
    prompt: tuple[int, int]
    answer: tuple[int, int]

    def sendings(self, random: Random) -> list[Sending]:
        at_s, sendings = 0.0, []
        for _ in range(self.num_requests):
            prompt = random.choices(TOKEN_IDS, k=random.randint(*self.prompt))
            sendings.append(Sending(at_s, prompt, random.randint(*self.answer)))
            at_s += random.expovariate(self.rate)
        return sendings


@dataclass(frozen=True, slots=True)
class Served:
    """What was sent, what came of it, and how steady the machine was meanwhile.

    ``learnt`` are the costs that the engines had learnt from their steps, the mean over the load.
    """

    sendings: Sequence[Sending]
    answers: Sequence[Answer]
    sharing: Sharing
    learnt: Learnt
    probes_before: Sequence[Answer]
    probes_after: Sequence[Answer]
    contention: Contention

    @property
    def late_s(self) -> float:
        """At most, that a request was sent later than it should have been."""
        return max(answer.sent_s - one.at_s for one, answer in zip(self.sendings, self.answers, strict=True))

    def latencies(self) -> dict[str, Latency]:
        """Of those that were served, by the names that a simulation gives them."""
        return {
            f"r{answer.number}": latency_of(answer, sending.max_tokens)
            for sending, answer in zip(self.sendings, self.answers, strict=True)
            if answer.status == OK
        }


def serve(mesh: LiveMesh, workload: Workload, random: Random, on_answer: Callable[[], None]) -> Served:
    """Warm up, measure the idle mesh and how engines share the machine, serve, and measure the idle mesh again."""
    sendings = workload.sendings(random)
    probe(mesh, random)  # memory that was never written and code that never ran are slower
    sharing = measure_sharing(mesh, random)
    before = probe(mesh, random)
    learnt: list[Learnt] = []
    num_answers = 0

    def on_each() -> None:
        nonlocal num_answers
        num_answers += 1
        if num_answers % ANSWERS_A_SAMPLE == 0 or num_answers == len(sendings):
            learnt.append(learnt_costs(mesh))
        on_answer()

    with Watch(mesh.pids()) as watch:
        answers = mesh.answers(sendings, on_each)
    return Served(sendings, answers, sharing, mean_costs(learnt), before, probe(mesh, random), watch.contention)


def mean_costs(samples: Sequence[Learnt]) -> Learnt:
    """Of costs that differ in their coefficients only."""
    return {
        engine: (_mean([sample[engine][0] for sample in samples]), _mean([sample[engine][1] for sample in samples]))
        for engine in samples[0]
    }


def _mean(costs: Sequence[CostT]) -> CostT:
    first = costs[0]
    names = [name for name in first.__struct_fields__ if isinstance(getattr(first, name), float)]
    means = {name: statistics.fmean([getattr(cost, name) for cost in costs]) for name in names}
    times_s = [[time_s for _, time_s in cost.table] for cost in costs]
    sizes = [size for size, _ in first.table]
    table = tuple(zip(sizes, map(statistics.fmean, zip(*times_s, strict=True)), strict=True))
    return msgspec.structs.replace(first, table=table, **means)


def learnt_costs(mesh: LiveMesh) -> Learnt:
    """What the mesh itself predicts with by now. Of engines with one service."""
    costs = {}
    for engine in mesh.status()["engines"]:
        (service,) = engine["services"]
        prefill = msgspec.convert(service["prefill_cost"], PrefillCost)
        costs[engine["id"]] = (prefill, msgspec.convert(service["decode_cost"], DecodeCost))
    return costs


def probe(mesh: LiveMesh, random: Random) -> list[Answer]:
    """Requests one by one."""
    prompts = [random.choices(TOKEN_IDS, k=PROBE_PROMPT) for _ in range(PROBES)]
    return mesh.answers([Sending(index * PROBE_GAP_S, prompt, PROBE_ANSWER) for index, prompt in enumerate(prompts)])


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
