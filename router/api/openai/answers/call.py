"""One API call: its choices run side by side until all have ended, one fails, or the client is gone."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from structlog.typing import FilteringBoundLogger

from mesh.wire.requests import FailureCode
from router.api.access.rates import Charge
from router.api.errors import ApiError, ClientGoneError, api_error
from router.api.http.disconnect import run_until
from router.api.metrics.gateway import BatchMetrics, ServiceMetrics
from router.api.openai.answers.choice import Choice, Piece
from router.api.openai.input.grammar_checks import CheckedGrammar
from router.generation import RequestFailed, Route, RouterError


class Sink(Protocol):
    """Takes the pieces of an answer. A choice's pieces come in order; choices interleave."""

    async def take(self, choice: Choice, piece: Piece, *, more: bool) -> None:
        """Take a piece of the answer. ``more``: the next piece, or the end of the call, comes without waiting."""


@dataclass(frozen=True, slots=True)
class Usage:
    num_prompt: int
    num_completion: int
    num_cached: int
    num_reasoning: int | None = None  # of the completion; None: nobody looked

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + self.num_completion

    def json(self) -> dict[str, object]:
        usage: dict[str, object] = {
            "prompt_tokens": self.num_prompt,
            "completion_tokens": self.num_completion,
            "total_tokens": self.num_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached},
        }
        if self.num_reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self.num_reasoning}
        return usage


@dataclass(frozen=True, slots=True)
class Envelope:
    """What surrounds the choices of an answer. ``created``: seconds since the epoch."""

    id: str
    created: int
    model: str

    def json(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


@dataclass(frozen=True, slots=True)
class Call:
    """One API call that runs. ``choices`` are ``n`` for each prompt, prompt by prompt."""

    request_id: str
    choices: Sequence[Choice]
    metrics: ServiceMetrics | BatchMetrics
    n: int
    log: FilteringBoundLogger
    grammar: CheckedGrammar | None = None
    charge: Charge | None = None  # of the key that asked
    named: Mapping[str, str] = field(default_factory=dict)  # what the log calls it beside its id

    @property
    def route(self) -> Route | None:
        return next((choice.generation.route for choice in self.choices if choice.generation.route), None)

    @property
    def usage(self) -> Usage:
        """Each prompt counts once, however many choices it has."""
        firsts = self.choices[:: self.n]
        return Usage(
            num_prompt=sum(len(choice.prompt.tokens) for choice in firsts),
            num_completion=sum(choice.num_tokens for choice in self.choices),
            num_cached=sum(choice.num_cached_tokens for choice in firsts),
            num_reasoning=sum(choice.num_reasoning_tokens for choice in self.choices) if firsts[0].is_read else None,
        )

    @property
    def _is_over(self) -> bool:
        return all(choice.finish is not None for choice in self.choices)

    async def run(self, sink: Sink, gone: Coroutine[Any, Any, None]) -> None:
        """Run until all choices have ended, or ``gone`` returns. However it ends, nothing of the call goes on.

        Raise the first `RouterError`, or `ClientGoneError` after ``gone``.
        """
        try:
            await run_until(self._run(sink), gone)
            self._log("answered")
        except (ApiError, RouterError) as error:
            failure = self._failure(error)
            code = api_error(failure).code or ""
            self.metrics.failed(code, broke_promise=not isinstance(error, ClientGoneError))
            self._log("not answered", code=code, reason=str(failure))
            raise failure from None
        finally:
            for choice in self.choices:
                choice.generation.cancel()
            if self.charge is not None:
                self.charge.settle(self.usage.num_tokens)

    def _failure(self, error: ApiError | RouterError) -> ApiError | RouterError:
        """What the client is told. That a grammar is too dear says an engine, who asked for it is known here."""
        if self.grammar and isinstance(error, RequestFailed) and error.code is FailureCode.GRAMMAR:
            return self.grammar.refuse(str(error))
        return error

    def _run(self, sink: Sink) -> Coroutine[Any, Any, None]:
        if len(self.choices) == 1:
            return self._pump(self.choices[0], sink)
        return self._run_all(sink)

    async def _run_all(self, sink: Sink) -> None:
        async with asyncio.TaskGroup() as tasks:
            for choice in self.choices:
                tasks.create_task(self._pump(choice, sink))

    async def _pump(self, choice: Choice, sink: Sink) -> None:
        generation = choice.generation
        async for batch in generation:
            piece = choice.feed(batch)
            await sink.take(choice, piece, more=self._is_over if piece.finish else generation.has_more)
            if piece.finish is not None:
                generation.finish()
                return

    def _log(self, event: str, **more: str) -> None:
        route, usage = self.route, self.usage
        self.log.info(
            event,
            request=self.request_id,
            prompt_tokens=usage.num_prompt,
            completion_tokens=usage.num_completion,
            ttft_ms=round(1000 * min(choice.generation.ttft_s or 0.0 for choice in self.choices), 3),
            rule=route and route.rule,
            prefill=route and route.prefill_engine,
            decode=route and route.decode_engine,
            **self.named,
            **more,
        )
