"""Tells Prometheus whom to scrape, in the form of its HTTP service discovery: GET /mesh/targets."""

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Response

from mesh.addresses import reached_at
from mesh.topology.schema import Topology
from mesh.wire.status import EngineStatus

AddressOf = Callable[[str], str]  # of a host; empty: nobody knows


class Target(msgspec.Struct, frozen=True):
    """A process that serves ``/metrics``. ``targets``: its host and port. Its name is the label ``instance``, so that
    its series go on when it comes back on another port.
    """

    targets: tuple[str, ...]
    labels: dict[str, str]


class TargetRoutes:
    def __init__(self, targets: Callable[[], list[Target]]) -> None:
        self._targets = targets

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/mesh/targets", self.targets, methods=["GET"])

    async def targets(self) -> Response:
        """The gateways and engines that this gateway hears."""
        return Response(msgspec.json.encode(self._targets()), media_type="application/json")


def targets_of(
    topology: Topology, admin_urls: Mapping[str, str], statuses: Mapping[str, EngineStatus], address_of: AddressOf
) -> Iterator[Target]:
    """Gateways, then engines. A gateway tells the URL by which its own host reaches it: others may need another."""
    for gateway, url in sorted(admin_urls.items()):
        spec, port = topology.gateway(gateway), urlsplit(url).port
        host = reached_at(spec.admin_address, address_of(spec.host))
        yield Target((f"{host}:{port}",), _labels(topology, gateway, "gateway"))
    for engine, status in sorted(statuses.items()):
        if status.metrics_url:
            yield Target((urlsplit(status.metrics_url).netloc,), _labels(topology, engine, "engine"))


def _labels(topology: Topology, process: str, kind: str) -> dict[str, str]:
    return {"instance": process, "kind": kind, "mesh": topology.name}
