"""Llumnix's evaluation as values: engines, loads, contenders, and one run of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from bench.papers.runs import make_fleet, modelled_engine
from engines.costs.profiles import EngineProfile, load_profile
from mesh.topology.schema import PolicySpec, Rescheduling, ServiceSpec, Slo, Topology, TransferSpec
from simulation.engines.physics import Physics
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from simulation.loads.workload_lengths import PREFIX, described_lengths

SERVICE = "llama-7b"
PROFILE = "a10-llama2-7b-tp1"
KV_TOKENS = 13_616  # of an engine in the paper: what vLLM leaves of an A10
NUM_ENGINES = 16
STEP_TOKENS = 12_800  # prompt tokens of an iteration, as in the published artifact
PHYSICS = Physics(kv_bytes_per_s=8e9)  # the paper's network of 64 Gb/s
AT_ONCE = Slo(ttft_s=0.001, tpot_s=1000.0)  # first come, first served under any policy; nothing is late by TPOT
HIGH = 1  # a priority


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    policy: str
    reschedules: bool = False
    neighbours: int = Rescheduling().neighbours

    def among(self, neighbours: int) -> "Contender":
        """Return the same with engines that exchange requests in groups of so many."""
        return replace(self, name=f"{self.name}, groups of {neighbours}", neighbours=neighbours)


ROUND_ROBIN = Contender("round robin", "round_robin")
INFAAS = Contender("infaas", "infaas")
DISPATCH = Contender("llumnix, dispatch only", "llumnix")
LLUMNIX = Contender("llumnix", "llumnix", reschedules=True)
CONTENDERS = (ROUND_ROBIN, INFAAS, DISPATCH, LLUMNIX)


def make_topology(contender: Contender, num_engines: int) -> Topology:
    names = (f"engine-{index:02}" for index in range(num_engines))
    return make_fleet(
        "llumnix",
        ServiceSpec(SERVICE, PROFILE, AT_ONCE),
        [modelled_engine(name, SERVICE, PROFILE, max_running=256, chunk_tokens=STEP_TOKENS) for name in names],
        PolicySpec(contender.policy),
        transfer=TransferSpec(migration_share=0.05),  # copies between GPUs take no core from decodes
        rescheduling=Rescheduling(neighbours=contender.neighbours) if contender.reschedules else None,
    )


def make_profile() -> EngineProfile:
    profile = load_profile(PROFILE)
    return replace(profile, kv_memory_bytes=KV_TOKENS * profile.kv_bytes_per_token)


@dataclass(frozen=True, slots=True)
class Load:
    """``cv`` is that of gamma arrivals; None: Poisson. ``high_share`` of the requests are of high priority."""

    lengths: str  # S-L, sharegpt, ...
    rate: float  # requests a second
    cv: float | None = None
    high_share: float = 0.0

    @property
    def name(self) -> str:
        return self.lengths if self.cv is None else f"{self.lengths}, CV {self.cv:g}"

    def requests(self, count: int, seed: int) -> Sequence[TraceRequest]:
        """Draw the requests, the same for every contender."""
        process = Process.POISSON if self.cv is None else Process.GAMMA
        arrivals = Arrivals(self.rate, process, self.cv or 1.0)
        endless = synthesize(described_lengths(PREFIX + self.lengths), arrivals, float("inf"), Random(f"{seed}/trace"))
        return list(self._marked(islice(endless, count), Random(f"{seed}/priorities")))

    def _marked(self, requests: Iterable[TraceRequest], random: Random) -> Iterator[TraceRequest]:
        for request in requests:
            yield replace(request, priority=HIGH if random.random() < self.high_share else 0)


@dataclass(frozen=True, slots=True)
class Case:
    """One run. Without ``heeds_priorities`` all are served alike, and still told apart afterwards."""

    load: Load
    contender: Contender
    seed: int
    num_requests: int
    num_engines: int = NUM_ENGINES
    heeds_priorities: bool = True
    coasts: bool = False
