"""The first half of a call that two servers share: one computes the prompt, the other one fetches its KV and goes on.

This is the handshake of vLLM's connectors (NIXL's and those that follow it), as vllm-project/router and llm-d have it.
The prefill server is asked for one token and for ``kv_transfer_params``, which tell where its KV is. The decode server
gets the request itself, with those parameters.
"""

from typing import Final, Protocol

import msgspec

from router.servers.calling import CallEnds, Calling
from router.servers.forwarded_call import CHAT, COMPLETIONS, CallBody, ForwardedCall
from router.servers.stream.chunks import has_any, read_usage
from router.servers.stream.going_on import is_on
from router.servers.stream.sse import BadStreamError

PATHS: Final = (CHAT, COMPLETIONS)  # whose prompts one server can compute for another one
ASKED: Final = msgspec.json.encode(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)
ONE: Final = msgspec.Raw(b"1")
LEFT_OUT: Final = ("stream_options", "min_tokens", "best_of")
MORE: Final = ("best_of", "use_beam_search")  # answers than are told


def can_be_shared(call: ForwardedCall) -> bool:
    """Say whether one server may compute the prompt for another one. KV is handed over once, for one answer: a second
    one would read memory that is given back, or the KV of another prompt.
    """
    return call.body.path in PATHS and call.num_choices == 1 and not any(is_on(call.body.fields, name) for name in MORE)


def prefill_body(body: CallBody, model: str) -> bytes:
    """Return what the prefill server is asked: the same request, for one token and the place of its KV."""
    fields = {name: value for name, value in body.fields.items() if name not in LEFT_OUT}
    limits = {name: ONE for name in ("n", "max_completion_tokens") if name in fields}
    own = {"model": msgspec.Raw(msgspec.json.encode(model)), "max_tokens": ONE, "stream": msgspec.Raw(b"false")}
    return msgspec.json.encode({**fields, **limits, **own, "kv_transfer_params": msgspec.Raw(ASKED)})


def with_kv_params(data: bytes, params: bytes) -> bytes:
    """Return a body for the decode server, which fetches the KV from where ``params`` say."""
    return data[:-1] + b',"kv_transfer_params":' + params + b"}" if params else data


class PrefillEnds(CallEnds, Protocol):
    """Is told what comes of the first half of a call."""

    def prefilled(self, params: bytes, num_cached: int) -> None:
        """The prompt is computed. ``params``: where its KV is, for the decode server."""


class _Answer(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


class PrefillCall(Calling):
    """One attempt at it. ``ends`` hears of it."""

    def __init__(self, call: ForwardedCall, ends: PrefillEnds) -> None:
        super().__init__(call, ends)
        self._prefill_ends = ends

    @property
    def _comes_in_events(self) -> bool:
        return False

    def _take_whole(self, body: bytes) -> None:
        try:
            params = msgspec.json.decode(body, type=_Answer).kv_transfer_params
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadStreamError(f"not an answer: {str(error)[:100]}") from None
        if not has_any(params):
            raise BadStreamError("it tells no kv_transfer_params: was it started with a KV connector that hands over?")
        usage = read_usage(body)
        self._prefill_ends.prefilled(bytes(params), 0 if usage is None else usage.num_cached)
