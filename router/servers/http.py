"""Opens what one server is asked with: a client session with its certificates, and the headers of each request."""

import os
import ssl

import aiohttp

from mesh.errors import UserError
from mesh.topology.schema import ServerSpec
from router.servers.stream.client import CallClient
from router.servers.stream.sse import BadStreamError


def open_session(server: ServerSpec, key: str | None) -> aiohttp.ClientSession:
    """Make a session that asks how a server is. Raise `UserError` if a certificate is not there."""
    certificates = certificates_of(server)
    connector = aiohttp.TCPConnector(limit=8, ssl=True if certificates is None else certificates, ttl_dns_cache=10)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=server.connect_timeout_s),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=dict(headers_of_server(server, key)),
    )


def open_client(server: ServerSpec, key: str | None) -> CallClient:
    """Make the client of a server's calls. Raise `UserError` if a certificate is not there."""
    return CallClient(server.url, headers_of_server(server, key), certificates_of(server), server.connect_timeout_s)


def headers_of_server(server: ServerSpec, key: str | None) -> list[tuple[str, str]]:
    """Return the headers of each request to it."""
    authorization = [] if key is None else [("authorization", f"Bearer {key}")]
    return [("accept-encoding", "identity"), *authorization, *server.headers.items()]


def key_of(engine: str, server: ServerSpec) -> str | None:
    """Read the key that the server wants. Raise `UserError` if it is not where the topology says."""
    if server.api_key_env is not None:
        return as_key(os.environ.get(server.api_key_env), f"{engine}: api_key_env = {server.api_key_env!r}")
    if server.api_key_file is None:
        return None
    source = f"{engine}: api_key_file = {server.api_key_file}"
    try:
        text = server.api_key_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{source} cannot be read ({error})") from None
    return as_key(text, source)


def as_key(text: str | None, source: str) -> str:
    """Return a key without the blanks around it. ``text`` None: its variable is not set. Raise `UserError` if there is
    none, or no header can hold it.
    """
    if text is None:
        raise UserError(f"{source} is not set; it holds the server's key")
    key = text.strip()
    if not key:
        raise UserError(f"{source} is empty; it holds the server's key")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"{source} is no key: it has characters that no header can hold")
    return key


def certificates_of(server: ServerSpec) -> ssl.SSLContext | None:
    """Return what a server's certificate is checked by; None without https. Raise `UserError` for a bad file."""
    if not server.url.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=None if server.tls_ca is None else str(server.tls_ca))
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"tls_ca = {server.tls_ca} cannot be used ({error})") from None
    if server.tls_insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def read_bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Read an answer. Raise `BadStreamError` if it is longer than that, before it is held."""
    pieces: list[bytes] = []
    num_bytes = 0
    async for piece in response.content.iter_any():
        num_bytes += len(piece)
        if num_bytes > most:
            raise BadStreamError(f"the answer has more than {most} bytes")
        pieces.append(piece)
    return b"".join(pieces)
