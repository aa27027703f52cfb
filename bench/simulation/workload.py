"""From a trace to requests as a gateway gets them."""

from dataclasses import dataclass

from bench.simulation.traces import MOONCAKE_BLOCK, TraceRequest
from engines.costs import prefill_s
from mesh.messages import PrefillCost, RequestSpec, Sampling
from mesh.topology.schema import ServiceSpec

FIRST_UNIQUE = 2**31  # token ids from here on belong to one request each


@dataclass(frozen=True, slots=True)
class SloRule:
    """The service's promise; with ``ttft_factor``, TTFT is that many times the request's own unloaded prefill time."""

    ttft_factor: float | None = None

    def ttft_s(self, service: ServiceSpec, request: TraceRequest, cost: PrefillCost) -> float:
        if self.ttft_factor is None:
            return service.slo.ttft_s
        return self.ttft_factor * prefill_s(cost, request.num_input)


def make_spec(
    request: TraceRequest, number: int, gateway: str, service: ServiceSpec, cost: PrefillCost, rule: SloRule
) -> RequestSpec:
    """Request ``number`` of a run, its answer exactly as long as the trace says."""
    return RequestSpec(
        id=f"r{number}",
        gateway=gateway,
        service=service.name,
        prompt=prompt_of(request, number),
        sampling=Sampling(max_tokens=request.num_output, seed=number, ignore_eos=True),
        slo_ttft_s=rule.ttft_s(service, request, cost),
        slo_tpot_s=service.slo.tpot_s,
        priority=service.priority,
    )


def prompt_of(request: TraceRequest, number: int) -> list[int]:
    """Token ids: equal for blocks that the trace says are the same, else like nobody else's."""
    prompt: list[int] = []
    for block in request.blocks:
        prompt += [block] * MOONCAKE_BLOCK
    del prompt[request.num_input :]
    prompt += [FIRST_UNIQUE + number] * (request.num_input - len(prompt))
    return prompt
