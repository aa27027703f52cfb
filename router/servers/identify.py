"""Asks a server what it is: `/v1/models` first, then what its kind of software tells of itself."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
import msgspec

from router.servers.facts import ServedName, ServerFacts, ServerKind

MAX_ANSWER_BYTES: Final = 4 * 2**20
MOST_MODELS: Final = 1024
MAX_NAME: Final = 256  # characters of a model's name
OWNERS: Final[Mapping[str, ServerKind]] = {
    "vllm": ServerKind.VLLM,
    "sglang": ServerKind.SGLANG,
    "llamacpp": ServerKind.LLAMA_CPP,
    "llama.cpp": ServerKind.LLAMA_CPP,
}
# Where each kind says its version, and under which key.
VERSIONS: Final[Mapping[ServerKind, tuple[tuple[str, str], ...]]] = {
    ServerKind.VLLM: (("/version", "version"),),
    ServerKind.SGLANG: (("/get_server_info", "version"), ("/server_info", "version")),
    ServerKind.LLAMA_CPP: (("/props", "build_info"),),
    ServerKind.OPENAI: (("/version", "version"), ("/api/version", "version")),
}
NAME_A_KEY: Final = "name one with api_key_env or api_key_file in a topology, with --api-key-env in a command"
NAME_CERTIFICATES: Final = "tls_ca in a topology, or the variable SSL_CERT_FILE, names certificates to check it by"
VERSION_PART: Final = 0.5  # of the deadline: a server whose version does not come can be used all the same
IS_IT_OPENAI: Final = "is it the address of an OpenAI server?"
RETURNS_IDS_SINCE: Final = (0, 10, 2)  # of vLLM


class ServerError(Exception):
    """A server cannot be used. The text names it and says why, in one line."""


class NoModelError(ServerError):
    """It answers, and lists no model."""


def base_url(url: str) -> str:
    """Return where a server's paths begin: with or without a last ``/v1``, it is the same server."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


async def identify(
    session: aiohttp.ClientSession, url: str, kind: ServerKind | None = None, deadline_s: float = 5.0
) -> ServerFacts:
    """Ask the server at ``url`` what it is. ``kind``: what it is said to be; None: its models say.

    Raises `ServerError` if it does not answer in time, or not as such a server.
    """
    base = base_url(url)
    try:
        async with asyncio.timeout(deadline_s):
            listed = await _ask(session, base, "/v1/models")
            models, owner = _models(base, listed)
            found = kind or OWNERS.get(owner.lower()) or ServerKind.OPENAI
            version = await _version(session, base, found, VERSION_PART * deadline_s)
    except TimeoutError:
        raise ServerError(f"{base} did not answer within {deadline_s:g} s") from None
    return _facts(found, version, models)


def _facts(kind: ServerKind, version: str, models: tuple[ServedName, ...]) -> ServerFacts:
    """What is known of a kind of server and its versions."""
    is_vllm, is_sglang = kind is ServerKind.VLLM, kind is ServerKind.SGLANG
    return ServerFacts(
        kind=kind,
        version=version,
        models=models,
        takes_token_ids=kind is not ServerKind.OPENAI,
        returns_token_ids=is_vllm and _numbers(version) >= RETURNS_IDS_SINCE,
        tokenizes=is_vllm,
        continues_messages=is_vllm or is_sglang,
    )


def _numbers(version: str) -> tuple[int, ...]:
    """(0, 19, 1) of "0.19.1rc2+cpu"; the largest there is of a version that has no numbers, as builds from source."""
    numbers: list[int] = []
    for part in version.split("+")[0].split(".")[:3]:
        digits = part[: next((at for at, letter in enumerate(part) if not letter.isdigit()), len(part))]
        if not digits:
            break
        numbers.append(int(digits[:6]))
    return tuple(numbers) if numbers else (2**31,)


async def _version(session: aiohttp.ClientSession, base: str, kind: ServerKind, deadline_s: float) -> str:
    """Empty if it does not say, or not in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            for path, key in VERSIONS[kind]:
                if version := await _version_at(session, base, path, key):
                    return version
    return ""


async def _version_at(session: aiohttp.ClientSession, base: str, path: str, key: str) -> str:
    try:
        said = await _ask(session, base, path)
    except ServerError:
        return ""
    version = said.get(key) if isinstance(said, dict) else None
    if not isinstance(version, str):
        return ""
    return "".join(letter for letter in version[:64] if letter.isprintable())


def _models(base: str, listed: object) -> tuple[tuple[ServedName, ...], str]:
    """The models, and who the first one is owned by. Raise `ServerError` if that is no list of models."""
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        raise ServerError(f"{base}/v1/models does not list models: {IS_IT_OPENAI}")
    entries = [entry for entry in data[:MOST_MODELS] if isinstance(entry, dict) and _is_name(entry.get("id"))]
    if not entries:
        raise NoModelError(f"{base} serves no model")
    return tuple(ServedName(entry["id"], _context(entry)) for entry in entries), str(entries[0].get("owned_by", ""))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()


def _context(entry: Mapping[str, Any]) -> int | None:
    meta = entry.get("meta")
    for value in (entry.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None):
        if isinstance(value, int) and 0 < value < 2**31:
            return value
    return None


async def _ask(session: aiohttp.ClientSession, base: str, path: str) -> object:
    try:
        async with session.get(base + path, allow_redirects=False) as answer:
            if answer.status in (401, 403):
                raise ServerError(f"{base} asks for a key ({answer.status}): {NAME_A_KEY}")
            if 300 <= answer.status < 400 and (place := answer.headers.get("location")):
                raise ServerError(f"{base}{path} redirects to {place[:200]!r}: name the server that is meant")
            if answer.status != 200:
                hint = f": {IS_IT_OPENAI}" if answer.status == 404 else ""
                raise ServerError(f"{base}{path} answers with status {answer.status}{hint}")
            body = await _read(answer, base + path)
            return msgspec.json.decode(body)
    except (aiohttp.ClientError, OSError) as error:
        raise ServerError(f"{base} cannot be reached: {_reason(error)}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise ServerError(f"{base}{path} does not answer with JSON: {IS_IT_OPENAI}") from None


async def _read(answer: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ServerError(f"{url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(body)


def _reason(error: Exception) -> str:
    """In the words of the system, if it has some; in one line."""
    if isinstance(error, aiohttp.ClientResponseError):
        return "it does not speak HTTP"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{error.certificate_error.args[-1]}; {NAME_CERTIFICATES}"
    cause = getattr(error, "os_error", None) or error
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return " ".join(text.split())[:300]
