"""Begins the calls of chats, by whatever API they came: each translates its bodies to a `ChatBody` first."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fastapi import Request

from mesh.clock import Clock
from router.api.access.promises import Promise
from router.api.http.callers import caller_of
from router.api.http.headers import Wishes, headers_of
from router.api.openai.answers.call import Call, Envelope
from router.api.openai.chat.answer_plan import AnswerPlan
from router.api.openai.chat.asked import asked_chat
from router.api.openai.input.answer_length import AnswerLength
from router.api.openai.input.bodies import ChatBody
from router.api.openai.input.ids import CallId
from router.api.openai.input.intake import Order, OrderIntake
from router.api.openai.input.prompts import PromptReader
from router.api.openai.input.sampling import check_chat
from router.api.openai.models import Models, ServedModel


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A chat whose answer is under way, with what its answer is shown by."""

    call: Call
    body: ChatBody
    model: ServedModel
    id: CallId
    envelope: Envelope


class ChatCalls:
    """``wall_clock``: seconds since the epoch."""

    def __init__(
        self,
        intake: OrderIntake,
        models: Models,
        clock: Clock,
        wall_clock: Callable[[], float],
        prompts: PromptReader,
    ) -> None:
        self._intake = intake
        self._models = models
        self._clock = clock
        self._wall_clock = wall_clock
        self._prompts = prompts

    async def begin(self, body: ChatBody, request: Request, arrived_s: float, prefix: str = "chatcmpl-") -> ChatCall:
        """Begin to answer. ``prefix``: of the answer's id. Raise `ApiError` if something is wrong with the body, or
        `RouterError` if the router does not take it; then nothing of it runs.
        """
        caller, wishes = caller_of(request.scope), Wishes.of(headers_of(request.scope))
        check_chat(body)
        model = self._models.find(body.model, caller)
        promise = Promise.of(wishes, model, caller)
        asked = asked_chat(body, model.style)
        prompt = await self._prompts.chat(asked.chat, model, caller.tenant, asked.images)
        plan = AnswerPlan.of(body, model.style, asked.use, prompt)
        grammar = await plan.grammar(partial(model.grammars.check, client=caller.tenant))
        call_id = CallId.draw(request.scope["state"]["request_id"])
        order = Order(
            id=call_id,
            arrived_s=arrived_s,
            model=model,
            body=body,
            prompt_param="messages",
            prompts=[prompt],
            length=AnswerLength.of_chat(body),
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            echo=False,
            promise=promise,
            caller=caller,
            answer_id=call_id.answer(prefix),
            grammar=grammar,
            trace=request.scope["state"].get("trace"),
            reader=plan.reader,
        )
        call = await self._intake.submit(order)
        envelope = Envelope(order.answer_id, int(self._wall_clock()), body.model or model.service)
        return ChatCall(call, body, model, call_id, envelope)

    async def num_tokens(self, body: ChatBody, request: Request) -> int:
        """Return how many tokens the prompt of a chat has. Raise `ApiError` as `begin`."""
        caller = caller_of(request.scope)
        check_chat(body)
        model = self._models.find(body.model, caller)
        asked = asked_chat(body, model.style)
        return len((await self._prompts.chat(asked.chat, model, caller.tenant, asked.images)).tokens)
