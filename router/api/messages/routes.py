"""The routes /v1/messages and /v1/messages/count_tokens."""

from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response

from mesh.clock import Clock
from router.api.http.fast_path import Handler
from router.api.messages.answers import MessageEvents, MessageShape
from router.api.messages.bodies import CountBody, MessagesBody
from router.api.messages.translation import NAMES, chat_of_messages
from router.api.openai.answers.stream import EventStream
from router.api.openai.answers.whole import json_answer, said_of
from router.api.openai.body_reader import BodyReader
from router.api.openai.chat.chat_calls import ChatCalls
from router.api.openai.chat.renamed import renaming
from router.api.openai.input.schema import body_schema

MESSAGES: Final = "/v1/messages"
COUNT_TOKENS: Final = "/v1/messages/count_tokens"


class MessageRoutes:
    def __init__(self, chats: ChatCalls, bodies: BodyReader, clock: Clock) -> None:
        self._chats = chats
        self._bodies = bodies
        self._clock = clock

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {MESSAGES: self.answer, COUNT_TOKENS: self.count}

    def install(self, app: FastAPI) -> None:
        for path, body in ((MESSAGES, MessagesBody), (COUNT_TOKENS, CountBody)):
            app.add_api_route(path, self.handlers[path], methods=["POST"], openapi_extra=body_schema(body))

    async def answer(self, request: Request) -> Response:
        arrived_s = self._clock.now()
        with self._bodies.enter(request) as entry:
            body = await self._bodies.translated(request, MessagesBody, entry, chat_of_messages)
            with renaming(NAMES):
                chat = await self._chats.begin(body, request, arrived_s, "msg_")
        shape = MessageShape.of(chat)
        if body.stream:
            return EventStream(chat.call, MessageEvents(shape), done=b"")
        with renaming(NAMES):
            said = await said_of(chat.call, request.receive)
        return json_answer(chat.call, shape.whole(said, chat.call.choices[0], chat.call.usage))

    async def count(self, request: Request) -> Response:
        with self._bodies.enter(request) as entry:
            body = await self._bodies.translated(request, CountBody, entry, chat_of_messages)
            with renaming(NAMES):
                number = await self._chats.num_tokens(body, request)
        return Response(msgspec.json.encode({"input_tokens": number}), media_type="application/json")
