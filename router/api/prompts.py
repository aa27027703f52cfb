"""From the prompts and messages of a request to token ids."""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from engines.models.chat_template import ChatError
from router.api.bodies import SHAPES, ChatBody, CompletionBody, Message, PromptItem
from router.api.choice import Prompt
from router.api.errors import bad_parameter
from router.api.models import ServedModel

LONG_TEXT: Final = 16_384  # characters; longer ones are encoded in a thread, so that other streams go on


async def completion_prompts(body: CompletionBody, model: ServedModel) -> list[Prompt]:
    """Raise `ApiError` on an empty prompt or a token id that the model does not have."""
    prompts = [await _prompt(item, model) for item in _items(body.prompt)]
    if not prompts or any(not prompt.tokens for prompt in prompts):
        raise bad_parameter("prompt", "must not be empty")
    return prompts


def _items(prompt: str | list[PromptItem]) -> list[str | list[int]]:
    """``prompt`` as a list of prompts. Raise `ApiError` if it mixes texts, token ids and lists of them."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = set(map(type, prompt))
    if len(kinds) > 1:
        raise bad_parameter("prompt", f"must be {SHAPES['prompt']}")
    if kinds == {int}:
        return [cast(list[int], prompt)]
    return cast(list[str | list[int]], prompt)


async def _prompt(item: str | list[int], model: ServedModel) -> Prompt:
    if isinstance(item, str):
        return Prompt(await encode(model, item), item)
    check_tokens("prompt", item, model)
    return Prompt(item, model.tokenizer.decode(item))


def check_tokens(param: str, tokens: Sequence[int], model: ServedModel) -> None:
    for token in tokens:
        if not 0 <= token < model.vocab_size:
            raise bad_parameter(param, f"token id {token} is not in 0..{model.vocab_size - 1}")


async def encode(model: ServedModel, text: str, *, add_special_tokens: bool = True) -> list[int]:
    if len(text) < LONG_TEXT:
        return model.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(model.tokenizer.encode, text, add_special_tokens=add_special_tokens)


async def chat_prompt(body: ChatBody, model: ServedModel) -> Prompt:
    tokens = await encode_chat(model, body.messages)
    if not tokens:
        raise bad_parameter("messages", "make an empty prompt")
    return Prompt(tokens)


async def encode_chat(model: ServedModel, messages: list[Message], *, add_generation_prompt: bool = True) -> list[int]:
    """Raise `ApiError` if a message has content that is not text, or the model's template refuses the messages."""
    plain = [{"role": _role(message), "content": _text(message, index)} for index, message in enumerate(messages)]
    try:
        text = model.tokenizer.render_chat(plain, add_generation_prompt=add_generation_prompt)
    except ChatError as error:
        raise bad_parameter("messages", str(error)) from None
    return await encode(model, text, add_special_tokens=False)


def _role(message: Message) -> str:
    """Templates know system messages; developer is OpenAI's newer word for them."""
    return "system" if message.role == "developer" else message.role


def _text(message: Message, index: int) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is None and message.role != "assistant":
        raise bad_parameter(f"messages[{index}].content", "is required", "missing_required_parameter")
    return "\n".join(_part_text(part.type, part.text, index) for part in message.content or ())


def _part_text(kind: str, text: str | None, index: int) -> str:
    if kind != "text" or text is None:
        raise bad_parameter(f"messages[{index}].content", f"only text parts are supported, not {kind!r}")
    return text
