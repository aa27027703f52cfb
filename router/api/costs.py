"""Tells what a gateway knows of its engines' costs: GET /mesh/costs."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
from fastapi import FastAPI, Response

from mesh.topology.schema import Topology
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost


class LearntRow(msgspec.Struct, frozen=True):
    """Costs of a service on an engine, as learnt by now. Errors are 90th percentiles of late predictions, as fractions.

    ``url`` and ``model``: of a server that is not ours, and the service's name there.
    """

    engine: str
    service: str
    prefill: PrefillCost
    decode: DecodeCost
    prefill_error: float | None = None
    decode_error: float | None = None
    kv_tokens: int = 0
    url: str | None = None
    model: str | None = None


class CostRoutes:
    def __init__(self, costs: Callable[[], list[LearntRow]]) -> None:
        self._costs = costs

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/costs", self.costs, methods=["GET"])

    async def costs(self) -> Response:
        """What prefills and decode steps of each engine cost, as its statuses say."""
        return Response(msgspec.json.encode(self._costs()), media_type="application/json")


def costs_of(topology: Topology, statuses: Mapping[str, EngineStatus]) -> Iterator[LearntRow]:
    """Yield the costs of all engines that are heard."""
    servers = {engine.id: engine.server for engine in topology.engines}
    for engine, status in sorted(statuses.items()):
        server = servers.get(engine)
        for service in status.services:
            yield LearntRow(
                engine,
                service.name,
                service.prefill_cost,
                service.decode_cost,
                service.prefill_error,
                service.decode_error,
                service.num_blocks * service.block_size,
                None if server is None else server.url,
                None if server is None else server.name_of(service.name),
            )
