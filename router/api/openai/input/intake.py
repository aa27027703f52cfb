"""Turns a checked request into a running call: one `RequestSpec` a choice, each with its own seed."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from engines.models.text.stop_strings import StopChecker, StopStrings
from mesh.clock import Clock
from mesh.wire.requests import RequestSpec, Sampling
from router.api.access.promises import Promise
from router.api.access.rates import Charge
from router.api.errors import api_error
from router.api.http.callers import Caller
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.answers.call import Call
from router.api.openai.answers.choice import Choice, Prompt
from router.api.openai.input.answer_length import AnswerLength
from router.api.openai.input.bodies import CompletionBody, SamplingBody
from router.api.openai.input.grammar_checks import CheckedGrammar
from router.api.openai.input.ids import CallId
from router.api.openai.input.sampling import check_logprobs, derived_seed, sampling_of, stop_strings
from router.api.openai.models import ServedModel
from router.chat.answer_reader import AnswerReader
from router.chat.channel_reader import ChannelReader
from router.generation import RequestRouter, RouterError
from router.traces.call_trace import CallFacts, CallTrace

CHOICES_PER_TURN: Final = 8

log = structlog.get_logger()


def _no_reader() -> AnswerReader | ChannelReader | None:
    return None


@dataclass(frozen=True, slots=True)
class Order:
    """What one API call asks for. ``logprobs``: as in `Sampling`; ``echo``: answers start with their prompts."""

    id: CallId
    arrived_s: float
    model: ServedModel
    body: SamplingBody
    prompt_param: str
    prompts: Sequence[Prompt]
    length: AnswerLength
    logprobs: int | None
    echo: bool
    promise: Promise
    caller: Caller
    answer_id: str  # as the client sees it
    grammar: CheckedGrammar | None = None
    trace: CallTrace | None = None
    reader: Callable[[], AnswerReader | ChannelReader | None] = _no_reader  # one a choice

    def call_facts(self) -> CallFacts:
        """What its trace tells of it."""
        is_chat = self.prompt_param == "messages"
        return CallFacts(
            request_id=self.id.request_id,
            response_id=self.answer_id,
            operation="chat" if is_chat else "text_completion",
            model=self.body.model or self.model.service,
            is_stream=bool(self.body.stream),
            num_choices=self.n,
        )

    @property
    def n(self) -> int:
        """How many answers to each prompt are written."""
        return self.body.num_drawn if isinstance(self.body, CompletionBody) else self.body.n or 1

    def num_tokens(self, samplings: Sequence[Sampling]) -> int:
        """The tokens that it may use at most. Each prompt counts once, however many choices it has."""
        return sum(
            len(prompt.tokens) + self.n * sampling.max_tokens
            for prompt, sampling in zip(self.prompts, samplings, strict=True)
        )

    def samplings(self) -> list[Sampling]:
        """One a prompt, for its first choice. Raise `ApiError` if one does not fit the model."""
        samplings = [self._sampling(prompt) for prompt in self.prompts]
        if self.logprobs is not None or self.body.prompt_logprobs is not None:
            check_logprobs(sum(map(self._num_logprobs, self.prompts, samplings)))
        return samplings

    def _num_logprobs(self, prompt: Prompt, sampling: Sampling) -> int:
        """At the most, that must be held at a time of the answers to one prompt."""
        num_tokens = (0 if self.body.stream else sampling.max_tokens) + (len(prompt.tokens) if self.echo else 0)
        of_prompt = 0 if sampling.prompt_logprobs is None else len(prompt.tokens) * (1 + sampling.prompt_logprobs)
        return self.n * (num_tokens * (1 + (sampling.logprobs or 0)) + (0 if self.echo else of_prompt))

    def _sampling(self, prompt: Prompt) -> Sampling:
        max_tokens = self.length.resolve(self.prompt_param, len(prompt.tokens), self.model)
        grammar = "" if self.grammar is None else self.grammar.text
        return sampling_of(self.body, self.model, max_tokens, self.logprobs, self.echo, grammar)


class OrderIntake:
    """Submits orders to the router."""

    def __init__(self, gateway: str, router: RequestRouter, metrics: GatewayMetrics, clock: Clock) -> None:
        self._gateway = gateway
        self._router = router
        self._metrics = metrics
        self._clock = clock
        self._log: FilteringBoundLogger = log.bind()  # once: for each call it costs more than a line that is dropped

    async def submit(self, order: Order) -> Call:
        """Raise `ApiError` on bad parameters, `RouterError` if the router does not take it; then nothing of it runs."""
        metrics = self._metrics.of_call(order.model.service, order.promise.priority)
        choices: list[Choice] = []
        samplings = order.samplings()
        stops = StopStrings(found) if (found := stop_strings(order.body)) else None
        charge = order.caller.begin(order.num_tokens(samplings))
        trace = order.trace
        if trace is not None:
            trace.describe = order.call_facts
        named = {} if trace is None else {"trace": trace.name}
        try:
            for prompt, spec in self._specs(order, samplings):
                choices.append(self._choice(order, prompt, spec, len(choices), stops))
                await self._pause(choices)
        except RouterError as error:
            metrics.failed(code := api_error(error).code or "", broke_promise=True)
            self._log.info(
                "refused",
                request=order.id.request_id,
                service=order.model.service,
                code=code,
                reason=str(error),
                **named,
            )
            _cancel(choices, charge)
            raise
        except BaseException:
            _cancel(choices, charge)
            raise
        finally:
            if trace is not None:
                trace.close()
        return Call(order.id.request_id, choices, metrics, order.n, self._log, order.grammar, charge, named)

    async def _pause(self, choices: Sequence[Choice]) -> None:
        """Each choice sends its whole prompt to an engine: let others have their turn in between."""
        if len(choices) % CHOICES_PER_TURN == 0:
            await asyncio.sleep(0)

    def _specs(self, order: Order, samplings: Sequence[Sampling]) -> Iterator[tuple[Prompt, RequestSpec]]:
        slo, priority = order.promise.slo, order.promise.priority
        for which, (prompt, sampling) in enumerate(zip(order.prompts, samplings, strict=True)):
            for index in range(order.n):
                yield (
                    prompt,
                    RequestSpec(
                        id=order.id.choice(which * order.n + index),
                        gateway=self._gateway,
                        service=order.model.held_as,
                        prompt=prompt.tokens,
                        sampling=msgspec.structs.replace(sampling, seed=derived_seed(sampling.seed, index)),
                        slo_ttft_s=slo.ttft_s,
                        slo_tpot_s=slo.tpot_s,
                        priority=priority,
                        age_s=self._clock.now() - order.arrived_s,
                        adapter=order.model.adapter,
                        images=prompt.images,
                        late=order.promise.late,
                        cache_salt=order.caller.cache_salt,
                    ),
                )

    def _choice(self, order: Order, prompt: Prompt, spec: RequestSpec, index: int, stops: StopStrings | None) -> Choice:
        reader = order.reader()
        return Choice(
            index,
            self._router.submit(spec, order.caller.tenant, order.trace),
            prompt,
            order.model.detokenizer(with_markers=reader is not None),
            None if stops is None else StopChecker(stops),
            min_tokens=order.body.min_tokens or 0,
            echo=order.echo,
            only_echo=order.echo and order.length.asked == 0,
            reader=reader,
        )


def _cancel(choices: Sequence[Choice], charge: Charge | None) -> None:
    if charge is not None:
        charge.settle(0)
    for choice in choices:
        choice.generation.cancel()
