"""One API call: its choices run side by side until all have ended, one fails, or the client is gone."""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from mesh.wire.requests import FailureCode
from router.api.access.rates import Charge
from router.api.errors import ApiError, ClientGoneError, api_error
from router.api.metrics.gateway import BatchMetrics, ServiceMetrics
from router.api.openai.answers.choice import Choice
from router.api.openai.answers.pump import Pump, Sink
from router.api.openai.input.grammar_checks import CheckedGrammar
from router.generation import RequestFailed, Route, RouterError


class Usage(msgspec.Struct, frozen=True):
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


class Envelope(msgspec.Struct, frozen=True):
    """What surrounds the choices of an answer. ``created``: seconds since the epoch."""

    id: str
    created: int
    model: str

    def json(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


class Call(msgspec.Struct, frozen=True):
    """One API call that runs. ``choices`` are ``n`` for each prompt, prompt by prompt."""

    request_id: str
    choices: Sequence[Choice]
    metrics: ServiceMetrics | BatchMetrics
    n: int
    log: FilteringBoundLogger
    grammar: CheckedGrammar | None = None
    charge: Charge | None = None  # of the key that asked
    named: Mapping[str, str] = {}  # what the log calls it beside its id

    @property
    def route(self) -> Route | None:
        for choice in self.choices:
            if (route := choice.generation.route) is not None:
                return route
        return None

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

    async def run(self, sink: Sink, gone: Coroutine[Any, Any, None]) -> None:
        """Run until all choices have ended, or ``gone`` returns. However it ends, nothing of the call goes on.

        Raise the first `RouterError`, or `ClientGoneError` after ``gone``.
        """
        try:
            await Pump(self.choices, sink).run(gone)
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
