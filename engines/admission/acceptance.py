"""Decides whether an engine takes a request. What it knows of itself is fresher than any gateway's view."""

from collections.abc import Mapping
from typing import Final

from engines.engine_request import EngineRequest
from engines.scheduling.backlog import Backlog
from engines.scheduling.service import Service
from engines.scheduling.slack import tightest_foreseen
from engines.scheduling.step import Step
from mesh.wire.control import PrefillMode
from mesh.wire.requests import Epoch, RefusalCode, RequestSpec, Submit

Refusal = tuple[RefusalCode, str]

MAX_WAITING_FILLERS: Final = 64  # of a service


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
        if self._is_full(service, spec):
            return RefusalCode.FULL, "as many requests as may wait wait already"
        if message.multiplex and not spec.is_filler:
            return self._multiplex_refusal(service, message, step, now)
        return None

    def _is_full(self, service: Service, spec: RequestSpec) -> bool:
        if spec.is_filler:
            return len(service.queue.fillers.waiting) >= MAX_WAITING_FILLERS
        return len(self._backlog.not_started(service)) >= self._max_waiting

    def _multiplex_refusal(self, service: Service, message: Submit, step: Step | None, now: float) -> Refusal | None:
        """Tropical's rule 3 with today's numbers: the prefill must fit the smallest slack of the running decodes.

        For prompts in foreseen slack it is the smallest one that is foreseen. They are computed in pieces, so together
        they may take longer than one iteration may.
        """
        spec = message.spec
        if service.pool.blocks_for(spec.num_tokens) > service.queue.num_free:
            return RefusalCode.NO_MEMORY, f"{service.queue.num_free} blocks are free"
        slack = self._foreseen_s(now) if message.prefill is PrefillMode.FORESEEN else _saved_s(service, now)
        request = EngineRequest.of(spec, Epoch(0), now, service.eos_token_ids, service.context_limit, service.ttft_s)
        stall = self._backlog.ahead_s(service, request, step, now)
        if stall >= slack:
            return RefusalCode.NO_SLACK, f"prefills of {stall * 1e3:.0f} ms exceed the slack of {slack * 1e3:.0f} ms"
        return None

    def _foreseen_s(self, now: float) -> float:
        """Of the decodes of all services."""
        services = self._services.values()
        for service in services:
            service.queue.book()
        decodes = [request for service in services for request in service.decoding()]
        return tightest_foreseen(decodes, now, sum([service.decode_step_s() for service in services])).slack_s


def _saved_s(service: Service, now: float) -> float:
    decodes = service.decodes(now)
    return decodes.paid_until - now - decodes.step_s
