"""The routes /v1/completions and /v1/chat/completions."""

from collections.abc import Callable

from fastapi import FastAPI, Request, Response

from mesh.clock import Clock
from router.api.access.promises import Promise
from router.api.http.callers import caller_of
from router.api.http.fast_path import Handler
from router.api.http.headers import Wishes, headers_of
from router.api.openai.answers.call import Envelope
from router.api.openai.answers.chat import ChatAnswer, ChatEvents, Shows
from router.api.openai.answers.completion import CompletionAnswer, CompletionEvents
from router.api.openai.answers.sse import ChunkTemplate
from router.api.openai.answers.stream import EventStream
from router.api.openai.answers.whole import whole_response
from router.api.openai.body_reader import BodyReader
from router.api.openai.chat.chat_calls import ChatCalls
from router.api.openai.input.answer_length import AnswerLength
from router.api.openai.input.bodies import ChatBody, CompletionBody, SamplingBody
from router.api.openai.input.grammar_checks import CheckedGrammar
from router.api.openai.input.grammars import grammar_of
from router.api.openai.input.ids import CallId
from router.api.openai.input.intake import Order, OrderIntake
from router.api.openai.input.prompts import PromptReader
from router.api.openai.input.sampling import check_completion
from router.api.openai.input.schema import body_schema
from router.api.openai.models import Models, ServedModel


class GenerateRoutes:
    def __init__(
        self,
        intake: OrderIntake,
        chats: ChatCalls,
        bodies: BodyReader,
        models: Models,
        prompts: PromptReader,
        clock: Clock,
        wall_clock: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._chats = chats
        self._models = models
        self._clock = clock
        self._wall_clock = wall_clock
        self._bodies = bodies
        self._prompts = prompts

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {"/v1/completions": self.complete, "/v1/chat/completions": self.chat}

    def install(self, app: FastAPI) -> None:
        for path, body in (("/v1/completions", CompletionBody), ("/v1/chat/completions", ChatBody)):
            app.add_api_route(path, self.handlers[path], methods=["POST"], openapi_extra=body_schema(body))

    async def complete(self, request: Request) -> Response:
        arrived_s, wishes = self._clock.now(), Wishes.of(headers_of(request.scope))
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, CompletionBody, entry)
            check_completion(body)
            model = self._models.find(body.model, caller)
            promise = Promise.of(wishes, model, caller)
            grammar = await self._grammar(body, model, request)
            call_id = CallId.draw(request.scope["state"]["request_id"])
            order = Order(
                id=call_id,
                arrived_s=arrived_s,
                model=model,
                body=body,
                prompt_param="prompt",
                prompts=await self._prompts.completion(body, model, caller.tenant),
                length=AnswerLength.of_completion(body),
                logprobs=0 if body.logprobs is None and body.has_best_of else body.logprobs,
                echo=bool(body.echo),
                promise=promise,
                caller=caller,
                answer_id=call_id.answer("cmpl-"),
                grammar=grammar,
                trace=request.scope["state"].get("trace"),
            )
            call, envelope = await self._intake.submit(order), self._envelope(order)
        with_logprobs = body.logprobs is not None
        if body.stream:
            template = ChunkTemplate(envelope, "text_completion", with_usage=_wants_usage(body))
            return EventStream(call, CompletionEvents(template, model, with_logprobs))
        answer = CompletionAnswer(model, with_logprobs, body.prompt_logprobs is not None, body.n or 1, body.num_drawn)
        return await whole_response(call, answer, envelope, request.receive)

    async def chat(self, request: Request) -> Response:
        arrived_s = self._clock.now()
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, ChatBody, entry)
            chat = await self._chats.begin(body, request, arrived_s)
        shows = Shows(
            bool(body.logprobs),
            body.include_reasoning is not False,
            chat.id,
            chat.model.style.calls.call_id_length,
            body.prompt_logprobs is not None,
        )
        if body.stream:
            template = ChunkTemplate(chat.envelope, "chat.completion.chunk", with_usage=_wants_usage(body))
            return EventStream(chat.call, ChatEvents(template, chat.model, shows))
        return await whole_response(chat.call, ChatAnswer(chat.model, shows), chat.envelope, request.receive)

    async def _grammar(self, body: SamplingBody, model: ServedModel, request: Request) -> CheckedGrammar | None:
        grammar = grammar_of(body)
        if grammar is None:
            return None
        return await model.grammars.check(grammar, caller_of(request.scope).tenant)

    def _envelope(self, order: Order) -> Envelope:
        name = order.body.model or order.model.service
        return Envelope(order.answer_id, int(self._wall_clock()), name)


def _wants_usage(body: ChatBody | CompletionBody) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)
