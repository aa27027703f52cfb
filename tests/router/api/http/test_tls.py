"""TLS: a certificate that is read again when it changes."""

import asyncio
import os
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from mesh.errors import UserError
from mesh.topology.schema import GatewaySpec
from router.api.http.callers import ClientPeers
from router.api.http.connections import Connections
from router.api.http.server import HttpServer, certificate_of, listen
from router.api.http.tls import Certificate


def make(folder, name):
    """A certificate for ``name`` and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


async def name_of(port):
    """Whom the certificate that is shown now is for, and what /live answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    return "first.example" if b"first.example" in shown else "second.example"


async def test_a_renewed_certificate_is_shown_without_a_restart(gateway, tmp_path):
    cert, key = make(tmp_path, "first.example")
    spec = GatewaySpec("g", port=0, tls_cert=cert, tls_key=key)
    listener, certificate = listen(spec), certificate_of(spec)
    server = HttpServer(gateway.app, listener, 1.0, Connections(64, 32), ClientPeers(), certificate)
    port = listener.getsockname()[1]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        assert await name_of(port) == "first.example"
        key.write_text("broken")
        certificate.refresh()
        assert await name_of(port) == "first.example", "what is broken changes nothing"
        make(tmp_path, "second.example")
        os.utime(key)
        certificate.refresh()
        assert await name_of(port) == "second.example"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /live HTTP/1.1\r\n\r\n")
        assert not (await reader.read()).startswith(b"HTTP/1.1 200"), "plain HTTP is not spoken there"
        writer.close()
        server.stop()


@pytest.mark.parametrize(("cert", "key"), [("missing", "missing"), ("text", "text")])
def test_files_that_cannot_be_used_are_one_clear_line(tmp_path, cert, key):
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(UserError) as caught:
        Certificate(tmp_path / cert, tmp_path / key)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / cert) in str(caught.value)


def test_without_files_it_is_plain():
    assert certificate_of(GatewaySpec("g")) is None


async def says_hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(spec, connections):
    listener = listen(spec)
    server = HttpServer(says_hello, listener, 1.0, connections, ClientPeers(), certificate_of(spec))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        await server.started()
        try:
            yield listener.getsockname()[1]
        finally:
            server.stop()
    assert len(connections) == 0
    connections.check_invariants()


async def half_open(port, number):
    """Every second client says nothing, the others no TLS."""
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    for _, writer in clients[1::2]:
        with suppress(ConnectionError):
            writer.write(b"\x16\x03\x01 no handshake" * 100)
    return clients


async def all_closed(clients):
    await asyncio.gather(*(reader.read() for reader, _ in clients), return_exceptions=True)
    for _, writer in clients:
        writer.close()


async def besieged(spec):
    """Somebody honest comes while thirty handshakes of one peer do not end."""
    connections = Connections(64, 8)
    async with serving(spec, connections) as port:
        half = await half_open(port, 30)
        assert await name_of(port) == "first.example"
        assert connections.refused["too many of one client"] >= 30 - 8
        connections.check_invariants()
    await all_closed(half)


async def outwaited(spec):
    """The clients wait for the server to hang up, which it does."""
    async with serving(spec, Connections(64, 8)) as port:
        await all_closed(await half_open(port, 4))


def run_in(new_loop, coroutine):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(coroutine)


LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


@LOOPS
async def test_handshakes_that_do_not_end_have_their_share(new_loop, tmp_path):
    cert, key = make(tmp_path, "first.example")
    spec = GatewaySpec("g", port=0, tls_cert=cert, tls_key=key)
    await asyncio.to_thread(run_in, new_loop, besieged(spec))


@LOOPS
async def test_handshakes_that_do_not_end_have_their_time(new_loop, tmp_path, monkeypatch):
    monkeypatch.setattr("router.api.http.handshakes.HANDSHAKE_S", 0.3)
    cert, key = make(tmp_path, "first.example")
    spec = GatewaySpec("g", port=0, tls_cert=cert, tls_key=key)
    await asyncio.to_thread(run_in, new_loop, outwaited(spec))
