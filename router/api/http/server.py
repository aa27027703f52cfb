"""The HTTP server of a gateway process: uvicorn without its own signals, logs and life cycle."""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from mesh.errors import UserError
from mesh.topology.schema import GatewaySpec
from router.api.http.callers import ClientPeers
from router.api.http.connections import Connection, Connections
from router.api.http.handshakes import Make, TlsListener
from router.api.http.leaving import Leaving
from router.api.http.protocol import BoundedProtocol
from router.api.http.tls import Certificate

log = structlog.get_logger()

BACKLOG = 2048
ADMIN_PORT_OFFSET = 1000
REFRESH_S = 2.0
LOOK_S = 0.5
LOOKS_PER_TURN = 1000
SPARE_FILES = 512  # of the process, for all but connections


@dataclass(frozen=True, slots=True)
class Listeners:
    """Listening sockets of a gateway: for clients, for operators."""

    public: socket.socket
    admin: socket.socket
    by_name: Mapping[str, socket.socket]  # as they are handed over to a successor

    @classmethod
    def of(cls, spec: GatewaySpec, inherited: Mapping[str, socket.socket]) -> "Listeners":
        """Take the listeners that a predecessor handed over, if it listens there, or make new ones.

        Raise `UserError` if an address is taken, not ours, or forbidden.
        """
        public, admin = public_name(spec), f"admin {spec.admin_address} port {spec.admin_port}"
        named = {
            public: inherited.get(public) or listen(spec),
            admin: inherited.get(admin) or listen_for_operators(spec),
        }
        return cls(named[public], named[admin], named)


def public_name(spec: GatewaySpec) -> str:
    return f"{spec.address} port {spec.port}"


def listen(spec: GatewaySpec) -> socket.socket:
    """A socket for clients. Raise `UserError` if the address is taken, not ours, or forbidden."""
    return _listen(spec.id, spec.address, spec.port)


def listen_for_operators(spec: GatewaySpec) -> socket.socket:
    """The same for the admin address. A port that nobody chose may be any."""
    if spec.admin_port is not None:
        return _listen(spec.id, spec.admin_address, spec.admin_port)
    try:
        return _listen(spec.id, spec.admin_address, usual_admin_port(spec))
    except UserError:
        return _listen(spec.id, spec.admin_address, 0)


def usual_admin_port(spec: GatewaySpec) -> int:
    usual = spec.port + ADMIN_PORT_OFFSET
    return usual if spec.port and usual < 65_536 else 0


def _listen(gateway: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(f"{gateway}: cannot listen on {address} port {port}: {_reason(error)}") from None
    listener.setblocking(False)
    return listener


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program uses it; stop that one, or set another port for the gateway"
    return error.strerror or str(error)


def url_of(address: str, listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL by which this host reaches a listener of that address; the port is the one that was bound."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    port = listener.getsockname()[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def certificate_of(spec: GatewaySpec) -> Certificate | None:
    """Return the certificate that a topology names. None: it speaks plain HTTP. Raise `UserError` if its files cannot
    be used.
    """
    if spec.tls_cert is None or spec.tls_key is None:
        return None
    return Certificate(spec.tls_cert, spec.tls_key)


def connections_of(spec: GatewaySpec) -> Connections:
    """Return as many connections as the gateway and its process may have; half of them of one peer."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(spec.max_connections, 2 * spec.max_requests)
    if files != resource.RLIM_INFINITY:
        most = min(most, max(files - SPARE_FILES, files // 2))
    return Connections(most, max(1, most // 2))


class HttpServer:
    """Serves an app on a listening socket until it is told to stop."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        stop_s: float,
        connections: Connections,
        peers: ClientPeers,
        certificate: Certificate | None = None,
    ) -> None:
        """Make a server for listeners. ``stop_s``: how long answers that are being sent may go on after `stop`.
        ``certificate``: speak TLS.
        """
        self._certificate = certificate
        self._listener = listener
        self.connections = connections
        self._leaving = Leaving(app)
        config = uvicorn.Config(
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
            timeout_graceful_shutdown=max(1, round(stop_s)),
        )
        config.load()
        self._server = _Server(config, self._listen_with_tls if certificate is not None else None)
        self._peers = peers

    def _listen_with_tls(self, listener: socket.socket, make: Make) -> TlsListener:
        assert self._certificate is not None
        return TlsListener(listener, self._certificate.context, self.connections, self._peers, make)

    async def run(self) -> None:
        """Return after `stop`, when the last answer has left."""
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_after())
            await self._server.serve(sockets=[self._listener])
            looking.cancel()

    async def _look_after(self) -> None:
        """Close connections whose clients take too long, a few at a time."""
        loop = asyncio.get_running_loop()
        refreshed_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            if self._certificate is not None and loop.time() - refreshed_at > REFRESH_S:
                self._certificate.refresh()
                refreshed_at = loop.time()
            for index, protocol in enumerate(list(self._server.server_state.connections)):
                if index % LOOKS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if isinstance(protocol, BoundedProtocol) and protocol.transport is not None:
                    self._look_at(protocol, loop.time())

    @staticmethod
    def _look_at(protocol: BoundedProtocol, now: float) -> None:
        try:
            protocol.look(now)
        except Exception:
            log.exception("a connection could not be closed in order")
            protocol.transport.abort()

    async def started(self) -> None:
        """Return once whoever connects is answered."""
        await self._server.has_started.wait()

    def stop_accepting(self) -> None:
        """A successor accepts from now on."""
        self._server.stop_accepting()

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
    def __init__(
        self, config: uvicorn.Config, listen_with_tls: Callable[[socket.socket, Make], TlsListener] | None
    ) -> None:
        """``listen_with_tls``: how to accept connections; None: they speak plain HTTP."""
        super().__init__(config)
        self._listen_with_tls = listen_with_tls
        self.has_started = asyncio.Event()
        self._connections = _Open()
        self.server_state.connections = self._connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but handshakes of TLS count as connections."""
        config = self.config

        def make(connection: Connection | None = None) -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state, connection=connection
            )

        loop = asyncio.get_running_loop()
        if self._listen_with_tls is not None:
            self.servers = [self._listen_with_tls(one, make) for one in sockets or []]  # type: ignore[misc]
        else:
            self.servers = [await loop.create_server(make, sock=one, backlog=config.backlog) for one in sockets or []]
        self.started = True
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
