"""The HTTP server of a gateway process: uvicorn without its own signals, logs and life cycle."""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from mesh.errors import UserError
from mesh.topology.schema import GatewaySpec
from router.api.callers import Peers
from router.api.connections import Connections
from router.api.leaving import Leaving
from router.api.protocol import BoundedProtocol

BACKLOG = 2048
KEEP_ALIVE_S = 75
LOOK_S = 0.5
LOOKS_PER_TURN = 1000
SPARE_FILES = 512  # of the process, for all but connections


def listen(spec: GatewaySpec, inherited: Mapping[str, socket.socket] = MappingProxyType({})) -> socket.socket:
    """A listening socket: the one that a predecessor handed over, if it listens there, or a new one.

    Raise `UserError` if the address is taken, not ours, or forbidden.
    """
    if (listener := inherited.get(address_of(spec))) is not None:
        return listener
    family = socket.AF_INET6 if ":" in spec.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((spec.address, spec.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(f"{spec.id}: cannot listen on {address_of(spec)}: {_reason(error)}") from None
    listener.setblocking(False)
    return listener


def address_of(spec: GatewaySpec) -> str:
    """The name of a listener where it is handed over."""
    return f"{spec.address} port {spec.port}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program uses it; stop that one, or set another port for the gateway"
    return error.strerror or str(error)


def url_of(spec: GatewaySpec, listener: socket.socket) -> str:
    """Where clients on this host reach the gateway; the port is the one that was bound."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(spec.address, spec.address)
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connections_of(spec: GatewaySpec) -> Connections:
    """As many as the gateway and its process may have; half of them of one peer."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(spec.max_connections, 2 * spec.max_requests)
    if files != resource.RLIM_INFINITY:
        most = min(most, max(files - SPARE_FILES, files // 2))
    return Connections(most, max(1, most // 2))


class HttpServer:
    """Serves an app on a listening socket until it is told to stop."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, stop_s: float, connections: Connections, peers: Peers
    ) -> None:
        """``stop_s``: how long answers that are being sent may go on after `stop`."""
        self._listener = listener
        self.connections = connections
        self._leaving = Leaving(app)
        self._server = _Server(
            uvicorn.Config(
                self._leaving,
                loop="none",
                http=partial(BoundedProtocol, connections=connections, peers=peers),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(stop_s)),
            )
        )

    async def run(self) -> None:
        """Return after `stop`, when the last answer has left."""
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_after())
            await self._server.serve(sockets=[self._listener])
            looking.cancel()

    async def _look_after(self) -> None:
        """Close connections whose clients take too long, a few at a time."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for index, protocol in enumerate(list(self._server.server_state.connections)):
                if index % LOOKS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if isinstance(protocol, BoundedProtocol) and protocol.transport is not None:
                    protocol.look(loop.time())

    async def started(self) -> None:
        """Return once whoever connects is answered."""
        await self._server.has_started.wait()

    async def leave(self, linger_s: float) -> None:
        """A successor accepts from now on: return when all connections have ended, each after its last answer.

        For ``linger_s`` they may still bring requests, which are answered; then those that are idle are closed.
        """
        self._server.stop_accepting()
        self._leaving.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                await self._server.until_unconnected()
        self._server.close_idle()
        await self._server.until_unconnected()

    def stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()
        self._connections = _Open()
        self.server_state.connections = self._connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.has_started.set()

    def stop_accepting(self) -> None:
        for server in self.servers:
            server.close()

    def close_idle(self) -> None:
        """The others end with the answer that they are sending."""
        for connection in list(self._connections):
            connection.shutdown()

    async def until_unconnected(self) -> None:
        while self._connections:
            self._connections.changed.clear()
            await self._connections.changed.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process shell's business."""
        yield


class _Open(set[Any]):
    """Those that are open. ``changed`` is set when one has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        self.changed.set()
