"""The seam between the API and the router: a request goes in, its tokens come out.

A `Generation` is one request on its way. Its batches are taken in order, each token once, whatever engines moved,
refused or died underneath; the last one is that whose ``finish`` is set, unless the request fails with a `RouterError`.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from mesh.wire.control import ProcessState
from mesh.wire.requests import Brought, FailureCode, FinishReason, RequestSpec, TokenLogprobs
from router.history.trace import RequestTrace


class Route(msgspec.Struct, frozen=True):
    """The engine where a request runs and the reason. ``rule`` names the policy's rule; ``queued_s`` is the wait in the
    gateway.
    """

    prefill_engine: str
    decode_engine: str  # as planned; equals ``prefill_engine`` when the request stays
    rule: str
    predicted_ttft_s: float  # from the moment of dispatch
    queued_s: float
    attempt: int  # 0: the first dispatch


class TokenBatch(msgspec.Struct, frozen=True):
    """New tokens of one request, at least one unless ``finish`` is set."""

    tokens: tuple[int, ...]
    finish: FinishReason | None
    num_cached_tokens: int  # prompt tokens that were not computed because of a prefix hit
    logprobs: tuple[TokenLogprobs, ...] | None  # one a token, if asked for
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None  # in the first batch, if asked for
    vector: bytes | None = None  # what a prompt that is pooled came to (`mesh.wire.requests.Delta`)
    brought: Brought | None = None  # in the first batch, of the prompt tokens that were not computed


class Generation(Protocol):
    """One request in flight, for one consumer. Whoever stops taking early calls `cancel` or `finish`."""

    @property
    def route(self) -> Route | None:
        """The route of the request. None until the request was first dispatched; the newest one after that. Set before
        the first batch.
        """

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the request's arrival to its first token; None until that has come."""

    def listen(self, tell: Callable[[], None]) -> None:
        """Let ``tell`` know that there is something to take: in a turn of the event loop of its own, once for all that
        came until then. It replaces who listened before, and hears nothing after `cancel` or `finish`.
        """

    def take(self) -> TokenBatch | None:
        """Take the next batch, the last one with ``finish`` set; None: it is not here yet. Raises `RouterError` if the
        request failed, once all that came before is taken.
        """

    @property
    def has_more(self) -> bool:
        """Return whether the next batch is here already."""

    def cancel(self) -> None:
        """Stop the request everywhere and free what it holds. Idempotent; does nothing after the end."""

    def finish(self) -> None:
        """The consumer has its whole answer, perhaps before the engine's end of it: stop what still runs."""


async def next_batch(generation: Generation) -> TokenBatch:
    """Wait for the next batch of a request that goes on. Raises `RouterError` if it fails."""
    while (batch := generation.take()) is None:
        news = asyncio.Event()
        generation.listen(news.set)
        await news.wait()
    return batch


class RequestRouter(Protocol):
    """What the API sees of the router."""

    @property
    def state(self) -> ProcessState: ...

    def submit(self, spec: RequestSpec, tenant: str = "", trace: RequestTrace | None = None) -> Generation:
        """Take a request; its id must be new. ``trace``: of its call. Raises `Overloaded` (a bound is reached) or
        `Draining`.
        """


class RouterError(Exception):
    """A request that the router did not take or could not finish. The text is for the client."""


class Overloaded(RouterError):  # noqa: N818
    """429: no engine can take the request in time, or this gateway holds too many. ``retry_after_s`` is an estimate."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Draining(RouterError):  # noqa: N818
    """503: this gateway takes no new requests."""

    def __init__(self) -> None:
        super().__init__("the gateway is shutting down; send the request to another one or try again later")


class NoEngines(RouterError):  # noqa: N818
    """503: no engine that serves the model is alive."""

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Fault(StrEnum):
    """Says whose fault it is that a request failed."""

    CLIENT = "client"  # 400: it would fail again, for instance because it fits no engine's KV memory
    SERVER = "server"  # 500: too many engines failed it
    UPSTREAM = "upstream"  # 502: servers of others, behind this gateway, broke off or sent what is no answer


class RequestFailed(RouterError):  # noqa: N818
    """400, 500 or 502, as ``fault`` says: the request cannot be run, or its consumer was too slow."""

    def __init__(self, reason: str, fault: Fault, code: FailureCode | None = None) -> None:
        """Say why a request failed. ``code``: what the engine that gave it up said."""
        super().__init__(reason)
        self.fault = fault
        self.code = code
