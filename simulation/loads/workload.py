"""Turns a trace into requests as a gateway gets them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from engines.adapters.access import named
from engines.adapters.folder import AdapterFolder
from engines.costs.linear import prefill_s
from mesh.topology.schema import ServiceSpec, Slo
from mesh.wire.adapters import LoraAdapter
from mesh.wire.requests import Pooling, RequestSpec, Sampling
from mesh.wire.status import PrefillCost
from router.history.lengths import AskedLength
from router.history.records import PROMPT_BLOCK
from simulation.loads.trace_request import TraceRequest

MOST_ASKED = 2048  # tokens of an answer that clients allow, unless it is longer: Aladdin's (section 6.1)
ANY_GRAMMAR = "%llguidance {}"  # of structured answers: none is followed, their lengths are the trace's
FIRST_UNIQUE = 2**31  # token ids from here on belong to one request each, in traces with blocks
UNIQUE = 255  # begins the name that a prompt repeats where there are no blocks


@dataclass(frozen=True, slots=True)
class SloRule:
    """What a request is promised: what its trace says it was, if ``keeps_traced``, else what its service promises.

    With ``ttft_factor``, TTFT is that many times the request's own unloaded prefill time, and TPOT the service's.
    """

    ttft_factor: float | None = None
    keeps_traced: bool = True

    def __reduce__(self) -> tuple[type["SloRule"], tuple[float | None, bool]]:
        """Let runs be sent to processes: what is compiled is frozen for pickle, too."""
        return SloRule, (self.ttft_factor, self.keeps_traced)

    def counts_traced(self, requests: Iterable[TraceRequest]) -> bool:
        """Does any request bring its own promise?"""
        has_own = any(request.slo_ttft_s is not None for request in requests)
        return has_own and self.keeps_traced and self.ttft_factor is None

    def common(
        self, services: Sequence[ServiceSpec], requests: Iterable[TraceRequest]
    ) -> tuple[float | None, float | None]:
        """TTFT and TPOT that all requests are promised; None where their promises differ."""
        by_name = {service.name: service for service in services}
        slos = {self._stated(by_name[request.service or services[0].name], request) for request in requests}
        ttfts, tpots = {slo.ttft_s for slo in slos}, {slo.tpot_s for slo in slos}
        return (
            ttfts.pop() if len(ttfts) == 1 and self.ttft_factor is None else None,
            tpots.pop() if len(tpots) == 1 else None,
        )

    def slo(self, service: ServiceSpec, request: TraceRequest, cost: PrefillCost) -> Slo:
        stated = self._stated(service, request)
        if self.ttft_factor is None:
            return stated
        return replace(stated, ttft_s=self.ttft_factor * prefill_s(cost, request.num_input))

    def _stated(self, service: ServiceSpec, request: TraceRequest) -> Slo:
        if self.ttft_factor is not None or not self.keeps_traced:
            return service.slo
        ttft_s, tpot_s = request.slo_ttft_s, request.slo_tpot_s
        if ttft_s is None and tpot_s is None:
            return service.slo
        return replace(service.slo, ttft_s=ttft_s or service.slo.ttft_s, tpot_s=tpot_s or service.slo.tpot_s)


@cache
def _read(name: str, folder: Path) -> LoraAdapter:
    """Raise `ModelError` if its files cannot be read."""
    return named(name, AdapterFolder.read(folder))


def make_spec(
    request: TraceRequest,
    number: int,
    gateway: str,
    service: ServiceSpec,
    cost: PrefillCost,
    rule: SloRule,
    origin: int | None = None,
) -> RequestSpec:
    """Request ``number`` of a run, its answer exactly as long as the trace says. A prompt that is pooled has none.

    ``origin``: the number of the first turn of its conversation; None: it is alone.
    """
    slo = rule.slo(service, request, cost)
    return RequestSpec(
        id=f"r{number}",
        gateway=gateway,
        service=service.base or service.name,
        adapter=None if service.adapter is None else _read(service.name, service.adapter),
        prompt=prompt_of(request, number if origin is None else origin),
        sampling=Sampling(
            max_tokens=1 if service.pools else request.num_output,
            seed=number,
            ignore_eos=True,
            grammar=ANY_GRAMMAR if request.is_structured else "",
        ),
        slo_ttft_s=slo.ttft_s,
        slo_tpot_s=slo.tpot_s,
        priority=service.priority if request.priority is None else request.priority,
        pooling=Pooling() if service.pools else None,
        late=service.late,
    )


def asked_of(spec: RequestSpec) -> AskedLength:
    """Return what a gateway may know of the length of its answer, which ``max_tokens`` would give away: up to
    `MOST_ASKED`.
    """
    limit = MOST_ASKED
    while limit < spec.sampling.max_tokens:
        limit *= 2
    return AskedLength(limit, is_exact=False)


def prompt_of(request: TraceRequest, origin: int) -> list[int]:
    """Token ids: equal for blocks that the trace says are the same, else like those of its conversation only, which
    ``origin`` names.
    """
    if not request.blocks:  # small ids, of which prefix caches keep a byte each (`engines.memory.block_digests.packed`)
        name = [UNIQUE, *origin.to_bytes(4, "little")]
        num_whole, num_left = divmod(request.num_input, len(name))
        return name * num_whole + name[:num_left]
    prompt = [block for block in request.blocks for _ in range(PROMPT_BLOCK)]
    del prompt[request.num_input :]
    prompt += [FIRST_UNIQUE + origin] * (request.num_input - len(prompt))
    return prompt


def blocks_of(request: TraceRequest) -> tuple[int, ...]:
    """The blocks that its prompt is made of: those that it is long enough for."""
    return request.blocks[: -(-request.num_input // PROMPT_BLOCK)]
