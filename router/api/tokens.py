"""/tokenize and /detokenize, as vLLM has them."""

import msgspec
from fastapi import FastAPI, Request, Response

from router.api.admission import Admission
from router.api.bodies import DetokenizeBody, TokenizeBody
from router.api.callers import caller_of
from router.api.errors import bad_parameter
from router.api.models import Models, ServedModel
from router.api.prompts import check_tokens, encode, encode_chat
from router.api.reading import read_body
from router.api.schema import body_schema


class TokenRoutes:
    def __init__(self, models: Models, admission: Admission, max_body_bytes: int) -> None:
        self._admission = admission
        self._models = models
        self._max_body_bytes = max_body_bytes

    def install(self, app: FastAPI) -> None:
        app.add_api_route("/tokenize", self.tokenize, methods=["POST"], openapi_extra=body_schema(TokenizeBody))
        app.add_api_route("/detokenize", self.detokenize, methods=["POST"], openapi_extra=body_schema(DetokenizeBody))

    async def tokenize(self, request: Request) -> Response:
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            body = await read_body(request, TokenizeBody, self._max_body_bytes, entry)
            model = self._models.find(body.model)
            tokens = await _tokens(body, model)
        answer = {"count": len(tokens), "max_model_len": model.max_context, "tokens": tokens}
        if body.return_token_strs:
            answer["token_strs"] = [model.token_text(token) for token in tokens]
        return Response(msgspec.json.encode(answer), media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        with self._admission.enter(caller_of(request.scope).peer) as entry:
            body = await read_body(request, DetokenizeBody, self._max_body_bytes, entry)
            model = self._models.find(body.model)
            check_tokens("tokens", body.tokens, model)
        return Response(
            msgspec.json.encode({"prompt": model.tokenizer.decode(body.tokens, skip_special_tokens=False)}),
            media_type="application/json",
        )


async def _tokens(body: TokenizeBody, model: ServedModel) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise bad_parameter("prompt", "is required, or messages instead", "missing_required_parameter")
    if body.messages is not None:
        return await encode_chat(model, body.messages, add_generation_prompt=body.add_generation_prompt is not False)
    return await encode(model, body.prompt or "", add_special_tokens=body.add_special_tokens is not False)
