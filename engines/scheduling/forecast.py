"""Predicts the work of one service's scheduler, from the cost models of all services of its engine."""

from collections.abc import Mapping

from engines.costs.step_cost import StepLoad
from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.scheduling.slack import IterationTime


class EngineForecast:
    """Implements `engines.scheduling.scheduler.PrefillForecast` for one service.

    ``services``: all services of the engine, as they come and go.
    """

    def __init__(self, service: Service, services: Mapping[str, Service]) -> None:
        self._service = service
        self._services = services

    def prefill_s(self, request: EngineRequest) -> float:
        return self._service.prefill_s(request)

    def decodes(self) -> list[EngineRequest]:
        return [request for service in self._services.values() for request in service.decoding()]

    def decode_round_s(self) -> float:
        return sum(service.decode_step_s() for service in self._services.values())

    def iteration_s(self) -> IterationTime:
        cost, decoding = self._service.step_cost(), self._service.decoding()
        num_decodes, context_tokens = len(decoding), sum([len(request.tokens) for request in decoding])
        return lambda chunks: sum(cost.parts(StepLoad(chunks, num_decodes, context_tokens)))

    def growth_elsewhere(self) -> int:
        return self._service.growth_elsewhere(self._services.values())
