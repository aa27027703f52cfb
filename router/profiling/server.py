"""Asks a server before it is measured: for its model, its kind and version, and its limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from mesh.errors import UserError
from mesh.suggestions import suggestion
from router.servers.facts import ServedName, ServerFacts, ServerKind
from router.servers.identify import ServerError, identify
from router.servers.load.load_names import read_load

ASK_S: Final = 10.0
MOST_BYTES: Final = 8 << 20
_BLOCK_SIZE: Final = re.compile(r'^vllm:cache_config_info\{[^}]*\bblock_size="(\d{1,6})"', re.M)


@dataclass(frozen=True, slots=True)
class ServerSays:
    """None: it does not say."""

    model: str
    kind: ServerKind
    version: str = ""
    max_context: int | None = None
    kv_tokens: int | None = None
    block_size: int | None = None
    prefix_caching: bool | None = None
    max_running: int | None = None


async def ask_server(session: aiohttp.ClientSession, url: str, wanted: str | None) -> ServerSays:
    """Raise `UserError` if nobody answers, or there are several models and none is ``wanted``."""
    try:
        facts = await identify(session, url, deadline_s=ASK_S)
    except ServerError as error:
        raise UserError(f"--url: {error}") from None
    model = _chosen(facts, wanted, url)
    says = says_of(facts, model, await _text(session, f"{url}/metrics"))
    return _with_slots(says, await _text(session, f"{url}/props")) if facts.kind is ServerKind.LLAMA_CPP else says


def says_of(facts: ServerFacts, model: ServedName, metrics: str) -> ServerSays:
    """Return what the server's facts and the text of its metrics tell."""
    load, block_size = read_load(metrics, facts.kind), _BLOCK_SIZE.search(metrics)
    return ServerSays(
        model.id,
        facts.kind,
        facts.version,
        model.max_context,
        load.kv_tokens,
        int(block_size[1]) if block_size and int(block_size[1]) else None,
        load.has_prefix_cache,
    )


def _with_slots(says: ServerSays, properties: str) -> ServerSays:
    """Of llama.cpp's server: as many requests at a time as it has slots, each with a context of its own."""
    try:
        found: dict[str, Any] = msgspec.json.decode(properties, type=dict[str, Any])
        slots = int(found["total_slots"])
        context = (found.get("default_generation_settings") or {}).get("n_ctx") or says.max_context
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError):
        return says
    kv_tokens = slots * context if isinstance(context, int) else None
    return ServerSays(says.model, says.kind, says.version, says.max_context, kv_tokens, max_running=slots)


def _chosen(facts: ServerFacts, wanted: str | None, url: str) -> ServedName:
    models: Mapping[str, ServedName] = {model.id: model for model in facts.models}
    if wanted is not None and wanted not in models:
        raise UserError(f"--model: {url} has no model {wanted!r}; {suggestion(wanted, models)}")
    if wanted is None and len(models) > 1:
        raise UserError(f"{url} has {len(models)} models; say which with --model: {', '.join(models)}")
    return models[wanted] if wanted is not None else facts.models[0]


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    """Empty if it has none."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(ASK_S), allow_redirects=False) as answer:
            if answer.status != 200:
                return ""
            text = bytearray()
            async for piece in answer.content.iter_any():
                text += piece
                if len(text) > MOST_BYTES:
                    return ""
            return text.decode(errors="replace")
    except (aiohttp.ClientError, OSError, TimeoutError):
        return ""
