"""Decides whether an engine takes a request. What it knows of itself is fresher than any gateway's view."""

from collections.abc import Mapping

from engines.engine_request import EngineRequest
from engines.scheduling.backlog import Backlog
from engines.scheduling.step import Step
from engines.status import Service
from mesh.wire.requests import Epoch, RefusalCode, RequestSpec, Submit

Refusal = tuple[RefusalCode, str]


class Admission:
    def __init__(self, services: Mapping[str, Service], backlog: Backlog, max_waiting: int) -> None:
        self._services = services
        self._backlog = backlog
        self._max_waiting = max_waiting

    def refusal(self, message: Submit, step: Step | None, now: float) -> Refusal | None:
        """Return why a request cannot be taken; None if it can."""
        spec = message.spec
        service = self._services.get(spec.service)
        if service is None:
            return RefusalCode.UNKNOWN_SERVICE, f"service {spec.service!r} is not here"
        if service.is_leaving:
            return RefusalCode.DRAINING, f"service {spec.service!r} is being unloaded"
        if service.pool.blocks_for(spec.num_tokens + 1) > service.pool.num_blocks:
            capacity = service.pool.num_blocks * service.pool.block_size
            return RefusalCode.NO_MEMORY, f"{spec.num_tokens} tokens do not fit the KV pool of {capacity}"
        if len(self._backlog.not_started(service)) >= self._max_waiting:
            return RefusalCode.FULL, f"{self._max_waiting} requests wait already"
        if message.multiplex:
            return self._multiplex_refusal(service, spec, step, now)
        return None

    def _multiplex_refusal(self, service: Service, spec: RequestSpec, step: Step | None, now: float) -> Refusal | None:
        """Tropical's rule 3 with today's numbers: the prefill must fit the smallest slack of the running decodes."""
        if service.pool.blocks_for(spec.num_tokens) > service.pool.num_free:
            return RefusalCode.NO_MEMORY, f"{service.pool.num_free} blocks are free"
        decodes = service.decodes(now)
        slack = decodes.paid_until - now - decodes.step_s
        request = EngineRequest.of(spec, Epoch(0), now, service.eos_token_ids, service.context_limit, service.ttft_s)
        stall = self._backlog.ahead_s(service, request, step, now)
        if stall >= slack:
            return RefusalCode.NO_SLACK, f"prefills of {stall * 1e3:.0f} ms exceed the slack of {slack * 1e3:.0f} ms"
        return None
