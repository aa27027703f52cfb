"""``python -m router --topology FILE --id ID``: one gateway process."""

import asyncio
import gc
import sys
import time
from random import Random

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from engines.models.store import prepared_dir
from mesh.messages import GatewayMessage
from mesh.process import ProcessShell, run_process
from mesh.sockets import Sockets
from mesh.topology.schema import GatewaySpec, Topology
from router.api.app import ApiConfig, create_app
from router.api.models import Models, ServedModel
from router.api.server import HttpServer, listen, url_of
from router.policies.registry import make_policy
from router.router import Router

STOP_S = 5.0  # for answers that are still being sent when all requests have ended

log = structlog.get_logger()


async def serve(shell: ProcessShell) -> None:
    """Until asked to drain; then until all requests have ended."""
    spec = shell.topology.gateway(shell.me.process)
    policy = make_policy(shell.topology.policy, Random(spec.id))
    listener = listen(spec)
    models = Models(ServedModel.load(service, prepared_dir(service.model)) for service in shell.topology.services)
    sockets: Sockets[GatewayMessage] = shell.sockets(GatewayMessage)
    router = Router(shell.topology, spec.id, sockets, shell.clock, policy)
    server = HttpServer(_app(shell, spec, router, models), listener, STOP_S)
    gc.collect()
    gc.freeze()  # what is loaded by now stays: a collection while tokens stream need not look at it
    try:
        await _run(shell, router, server, url_of(spec, listener))
    finally:
        await sockets.close()


def _app(shell: ProcessShell, spec: GatewaySpec, router: Router, models: Models) -> FastAPI:
    return create_app(
        ApiConfig(
            gateway=spec.id,
            frontdoor=router,
            models=models,
            view=router.view,
            clock=shell.clock,
            wall_clock=time.time,
            max_body_bytes=spec.max_body_bytes,
            registry=CollectorRegistry(),
        )
    )


async def _run(shell: ProcessShell, router: Router, server: HttpServer, url: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        routing = tasks.create_task(router.run())
        serving = tasks.create_task(server.run())
        router.open(url)
        log.info("serving", url=url)
        await shell.drain.wait()
        await router.drain()
        server.stop()
        await serving
        routing.cancel()


def _gateways(topology: Topology) -> list[str]:
    return [gateway.id for gateway in topology.gateways]


if __name__ == "__main__":
    sys.exit(run_process("router", _gateways, serve))
