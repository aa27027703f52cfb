"""The routes /tokenize and /detokenize, as vLLM has them."""

from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response

from router.api.errors import bad_parameter
from router.api.http.callers import caller_of
from router.api.http.fast_path import Handler
from router.api.openai.body_reader import BodyReader
from router.api.openai.chat.asked import chat_of, images_of
from router.api.openai.input.bodies import DetokenizeBody, TokenizeBody
from router.api.openai.input.prompts import PromptReader, check_tokens
from router.api.openai.input.schema import body_schema
from router.api.openai.models import Models, ServedModel

MANY_TOKENS: Final = 1024  # to spell out one by one


class TokenRoutes:
    """What they take and give is bounded by the model's context."""

    def __init__(self, bodies: BodyReader, models: Models, prompts: PromptReader) -> None:
        self._bodies = bodies
        self._models = models
        self._prompts = prompts

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers by path; all take POST."""
        return {"/tokenize": self.tokenize, "/detokenize": self.detokenize}

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/tokenize", self.tokenize, methods=["POST"], openapi_extra=body_schema(TokenizeBody))
        app.add_api_route("/detokenize", self.detokenize, methods=["POST"], openapi_extra=body_schema(DetokenizeBody))

    async def tokenize(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, TokenizeBody, entry)
            model = self._models.find(body.model, caller)
            tokens = await self._tokens(body, model, caller.tenant)
            check_tokens("prompt" if body.messages is None else "messages", tokens, model)
            answer = {"count": len(tokens), "max_model_len": model.max_context, "tokens": tokens}
            if body.return_token_strs:
                answer["token_strs"] = await self._texts(tokens, model, request)
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        with self._bodies.enter(request) as entry:
            body = await self._bodies.read(request, DetokenizeBody, entry)
            model = self._models.find(body.model, caller)
            check_tokens("tokens", body.tokens, model)
            text = await self._prompts.text_of(body.tokens, model, caller.tenant, skip_special_tokens=False)
        return Response(msgspec.json.encode({"prompt": text}), media_type="application/json")

    async def _tokens(self, body: TokenizeBody, model: ServedModel, client: str) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise bad_parameter("prompt", "is required, or messages instead", "missing_required_parameter")
        if body.messages is not None:
            chat = chat_of(body.messages, body, model.style, body.tools)
            return (await self._prompts.chat(chat, model, client, images_of(body.messages))).tokens
        with_special = body.add_special_tokens is not False
        return await self._prompts.encode(body.prompt or "", model, client, add_special_tokens=with_special)

    async def _texts(self, tokens: Sequence[int], model: ServedModel, request: Request) -> list[str]:
        def spell() -> list[str]:
            return [model.token_text(token) for token in tokens]

        return await self._bodies.aside(request, spell, is_long=len(tokens) > MANY_TOKENS)
