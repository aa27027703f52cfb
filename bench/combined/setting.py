"""The setting: six services of four sizes on A100s, three keys, and promises of three kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from bench.combined.sources import Pattern, Source
from bench.simulated import make_fleet, modelled_engine
from engines.costs.linear import prefill_s
from engines.costs.named_profiles import load_profile
from mesh.topology.schema import EngineSpec, PolicySpec, Rescheduling, ServiceSpec, Slo, Topology
from mesh.topology.timing import Timing
from mesh.wire.control import Role
from simulation.engines.shared_profiles import Profile, SharedProfile
from simulation.loads.trace_request import TraceRequest

PROMISE: Final = 0.9
MAX_RUNNING, CHUNK_TOKENS = 256, 2048
TIMING: Final = Timing(heartbeat_s=5.0, lease_s=60.0, reply_s=60.0)  # nobody dies, and statuses follow changes anyway


class PromiseKind(StrEnum):
    """What is promised: to people who type, to people who read, or by the length of the prompt."""

    QUICK = "quick"
    USUAL = "usual"
    BY_PROMPT = "by prompt"


FIXED: Final = {PromiseKind.QUICK: Slo(1.0, 0.05, PROMISE), PromiseKind.USUAL: Slo(3.0, 0.1, PROMISE)}
BY_PROMPT: Final = Slo(2.0, 0.1, PROMISE)  # or five times the request's own prefill on an idle engine, if that is more
TTFT_FACTOR: Final = 5.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A service: a preset of costs, whose requests come from a source, as a share of all requests."""

    profile: str
    source: Source
    promise: PromiseKind
    share: float

    @property
    def slo(self) -> Slo:
        return FIXED.get(self.promise, BY_PROMPT)

    def promised(self, request: TraceRequest) -> TraceRequest:
        slo, ttft_s = self.slo, self.slo.ttft_s
        if self.promise is PromiseKind.BY_PROMPT:
            ttft_s = max(ttft_s, TTFT_FACTOR * prefill_s(load_profile(self.profile).prefill, request.num_input))
        return replace(request, slo_ttft_s=ttft_s, slo_tpot_s=slo.tpot_s)


SHAREGPT, ARXIV = "sharegpt_8k_lengths/sharegpt_8k_llama2.csv", "arxiv_summarization_lengths/arxiv_4k_llama2.csv"
HUMANEVAL = "humaneval_lengths/humaneval_lengths.csv"
SHORT, LONG = (3584, 512), (32000, 1536)
KINDS: Final[Mapping[str, Kind]] = {
    "chat": Kind("v100-llama2-7b-tp2", Source(Pattern.AZURE, None, (1020, 129), 0.9, SHORT), PromiseKind.QUICK, 0.265),
    "code": Kind(
        "v100-llama2-7b-tp2", Source(Pattern.SERVEGEN, HUMANEVAL, (158, 60), 0.6, SHORT), PromiseKind.QUICK, 0.205
    ),
    "assistant": Kind(
        "a100-llama2-13b-tp2", Source(Pattern.SERVEGEN, SHAREGPT, (1730, 415), 0.7, SHORT), PromiseKind.USUAL, 0.115
    ),
    "summaries": Kind(
        "a100-llama2-13b-tp2", Source(Pattern.AZURE, ARXIV, (2730, 167), 0.4, SHORT), PromiseKind.BY_PROMPT, 0.135
    ),
    "documents": Kind(
        "a100-qwen3-32b-tp2", Source(Pattern.MOONCAKE, None, (6909, 350), 1.0, LONG), PromiseKind.BY_PROMPT, 0.063
    ),
    "expert": Kind(
        "a100-llama3-70b-tp4", Source(Pattern.AZURE, SHAREGPT, (1730, 415), 0.7, SHORT), PromiseKind.USUAL, 0.217
    ),
}
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {  # services whose weights are together on one engine
    "small": ("chat", "code"),
    "medium": ("assistant", "summaries"),
    "large": ("documents",),
    "huge": ("expert",),
}
SIZES: Final[Mapping[str, int]] = {"small": 3, "medium": 3, "large": 6, "huge": 4}  # of 16 engines
Groups = Mapping[str, tuple[tuple[str, ...], int]]  # services whose weights are together, and engines that hold them
KEYS: Final = (("first", 1, 0.2), ("second", 0, 0.5), ("third", -1, 0.3))  # name, priority and share of requests


# --- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """So many requests of these services, at that rate if it were all of them. ``data``: a folder of traces; None:
    made-up ones.
    """

    rate: float
    num_requests: int
    seed: int
    data: Path | None = None
    services: tuple[str, ...] = tuple(KINDS)

    def requests(self) -> list[TraceRequest]:
        """Draw them, in order of arrival: the same pattern at any rate. Raise `TraceError`."""
        drawn = [one for name in self.services for one in self._of(name, KINDS[name])]
        return sorted(drawn, key=lambda one: one.at_s)

    def _of(self, name: str, kind: Kind) -> Iterator[TraceRequest]:
        random, span_s = Random(f"{self.seed}/{name}"), self.num_requests / self.rate
        number = max(2, round(kind.share * self.num_requests))
        for one in kind.source.requests(self.data, number, random):
            [(tenant, priority, _)] = random.choices(KEYS, [share for *_, share in KEYS])
            placed = replace(one, at_s=one.at_s * span_s, service=name, tenant=tenant, priority=priority)
            yield kind.promised(placed)


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """How engines are used. ``has_prefill``: one in four only prefills. ``shares``: services share engines.

    ``slice_tokens``: of an answer, for which memory is granted at a time. ``caches``: engines keep prefixes.
    """

    has_prefill: bool = False
    shares: bool = True
    caches: bool = True
    slice_tokens: int | None = None


def groups_of(layout: Layout, num_engines: int) -> Groups:
    """All groups, in proportion to `SIZES`, each service on one engine at least."""
    total = sum(SIZES.values())
    counts = {name: max(1, round(size * num_engines / total)) for name, size in SIZES.items()}
    if layout.shares:
        return {name: (services, counts[name]) for name, services in GROUPS.items()}
    return {
        service: ((service,), max(1, (counts[name] + index) // len(services)))
        for name, services in GROUPS.items()
        for index, service in enumerate(reversed(services))
    }


def make_engines(layout: Layout, groups: Groups) -> Sequence[EngineSpec]:
    return [
        modelled_engine(
            f"{group}-{number:02}",
            services[0],
            KINDS[services[0]].profile,
            role=Role.PREFILL if layout.has_prefill and number < count // 3 else Role.MULTIPLEX,
            max_running=MAX_RUNNING,
            chunk_tokens=CHUNK_TOKENS,
            services=services,
            prefix_caching=layout.caches,
            slice_tokens=layout.slice_tokens,
        )
        for group, (services, count) in groups.items()
        for number in range(count)
    ]


@cache
def _profile(services: tuple[str, ...]) -> Profile:
    known = {name: load_profile(KINDS[name].profile) for name in services}
    return SharedProfile.of(known) if len(known) > 1 else known[services[0]]


def make_topology(
    layout: Layout, groups: Groups, policy: PolicySpec, rescheduling: Rescheduling | None
) -> tuple[Topology, Mapping[str, Profile]]:
    """A topology, and the profiles of its engines."""
    engines = make_engines(layout, groups)
    served = {name for engine in engines for name in engine.services}
    services = [ServiceSpec(name, kind.profile, kind.slo) for name, kind in KINDS.items() if name in served]
    topology = make_fleet("combined", services, engines, policy, rescheduling=rescheduling, timing=TIMING)
    return topology, {engine.id: _profile(engine.services) for engine in engines}
