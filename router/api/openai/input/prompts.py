"""Turns the prompts and messages of a request into token ids.

Short ones are tokenised at once. Longer ones take their turn in the background, so that streams go on, and those that
cannot fit the model's context are refused before they are tokens.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from engines.models.text.chat_template import Chat, ChatError
from router.api.background import Background
from router.api.errors import bad_parameter, text_too_long, too_long
from router.api.openai.answers.choice import Prompt
from router.api.openai.input.bodies import SHAPES, CompletionBody, PromptItem
from router.api.openai.input.sampling import check_num_choices
from router.api.openai.input.unsupported import unsupported
from router.api.openai.models import ServedModel
from router.chat.reasoning import ReasoningState
from router.images.placing import place
from router.images.reader import ImageReader
from router.images.sources import DEFAULT_LIMITS, ImageSource

LONG_TEXT: Final = 8192  # characters; the library takes 5 ms for them at the worst
MANY_MESSAGES: Final = 64
MANY_TOKENS: Final = 4096  # to turn into text


class PromptReader:
    """Reads prompts for all requests of a gateway. ``client`` is whose turn it is in the background."""

    def __init__(self, background: Background, images: ImageReader | None = None) -> None:
        self._background = background
        self._images = images or ImageReader(background, DEFAULT_LIMITS)

    async def completion(self, body: CompletionBody, model: ServedModel, client: str) -> list[Prompt]:
        """Raise `ApiError` on an empty or too long prompt, or a token id that the model does not have."""
        if body.suffix:
            return [await self._infill(body, body.suffix, model, client)]
        items = _items(body.prompt)
        check_num_choices(len(items), body.num_drawn)
        if not all(items):
            raise bad_parameter("prompt", "must not be empty")
        is_long = sum(map(len, items)) > LONG_TEXT
        prompts = [await self._prompt(item, model, client, is_long, bool(body.echo)) for item in items]
        if not all(prompt.tokens for prompt in prompts):
            raise bad_parameter("prompt", "must not be empty")
        return prompts

    async def _infill(self, body: CompletionBody, after: str, model: ServedModel, client: str) -> Prompt:
        """Raise `ApiError` if the model cannot fill in, or the prompt is not one text."""
        if model.infill is None:
            raise unsupported("suffix", "this model has no tokens to fill in with")
        if not isinstance(body.prompt, str):
            raise bad_parameter("suffix", "needs a prompt that is one text")
        if body.echo:
            raise bad_parameter("suffix", "cannot be combined with echo")
        is_long = len(body.prompt) + len(after) > LONG_TEXT
        first = await self._encode(body.prompt, "prompt", model, client, is_long, add_special_tokens=False)
        last = await self._encode(after, "suffix", model, client, is_long, add_special_tokens=False)
        return Prompt([*model.starting_tokens, *model.infill.prompt(first, last)])

    async def _prompt(
        self, item: str | list[int], model: ServedModel, client: str, is_long: bool, echo: bool
    ) -> Prompt:
        if isinstance(item, str):
            return Prompt(await self._encode(item, "prompt", model, client, is_long), item)
        check_tokens("prompt", item, model)
        return Prompt(item, await self.text_of(item, model, client) if echo else "")

    async def chat(self, chat: Chat, model: ServedModel, client: str, images: Sequence[ImageSource] = ()) -> Prompt:
        """Raise `ApiError` if the template refuses the messages, or they are empty or too long, or an image cannot be
        shown.
        """
        if images:
            return await self._chat_with_images(chat, model, client, images)
        tokens, reasoning = await self._encode_chat(chat, model, client)
        if not tokens:
            raise bad_parameter("messages", "make an empty prompt")
        return Prompt(tokens, reasoning=reasoning)

    async def _chat_with_images(
        self, chat: Chat, model: ServedModel, client: str, images: Sequence[ImageSource]
    ) -> Prompt:
        """The text is read first: it costs less than an image."""
        form = model.sight.form
        if form is None:
            raise images[0].fault(f"is not supported: {model.sight.why_not}", "unsupported_parameter")
        tokens, reasoning = await self._encode_chat(chat, model, client)
        cuts = await self._images.read(images, form, client)
        encode = partial(model.encode, add_special_tokens=False)
        prompt, placed = place(tokens, cuts, form, encode)
        self._images.room.hold(placed)
        return Prompt(prompt, reasoning=reasoning, images=placed)

    async def encode(self, text: str, model: ServedModel, client: str, *, add_special_tokens: bool) -> list[int]:
        return await self._encode(text, "prompt", model, client, len(text) > LONG_TEXT, add_special_tokens)

    async def _encode(
        self, text: str, param: str, model: ServedModel, client: str, is_long: bool, add_special_tokens: bool = True
    ) -> list[int]:
        if not is_long:
            return model.encode(text, add_special_tokens=add_special_tokens)
        return await self._background.run(client, partial(encode_long, text, param, model, add_special_tokens))

    async def _encode_chat(self, chat: Chat, model: ServedModel, client: str) -> tuple[list[int], ReasoningState]:
        length = _num_characters(chat)
        if length > model.max_characters:
            raise text_too_long("messages", model.max_context)
        if length <= LONG_TEXT and len(chat.messages) <= MANY_MESSAGES:
            text = _render(chat, model)
            return model.encode(text, add_special_tokens=False), _reasoning_after(text, model)
        return await self._background.run(client, partial(_encode_long_chat, chat, model))

    async def text_of(
        self, tokens: Sequence[int], model: ServedModel, client: str, *, skip_special_tokens: bool = True
    ) -> str:
        decode = partial(model.tokenizer.decode, tokens, skip_special_tokens)
        return decode() if len(tokens) <= MANY_TOKENS else await self._background.run(client, decode)


def _items(prompt: str | list[PromptItem]) -> list[str | list[int]]:
    """``prompt`` as a list of prompts. Raise `ApiError` if it mixes texts, token ids and lists of them."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = set(map(type, prompt))
    if len(kinds) > 1:
        raise bad_parameter("prompt", f"must be {SHAPES['prompt']}")
    if kinds == {int} or not kinds:
        return [cast(list[int], prompt)]
    return cast(list[str | list[int]], prompt)


def check_tokens(param: str, tokens: Sequence[int], model: ServedModel) -> None:
    """Raise `ApiError` if there are more than the model's context holds, or one that the model does not have."""
    if len(tokens) > model.max_context:
        raise too_long(param, len(tokens), 1, model.max_context)
    if tokens and max(tokens) >= model.vocab_size:
        raise bad_parameter(param, f"token id {max(tokens)} is not in 0..{model.vocab_size - 1}")


def encode_long(text: str, param: str, model: ServedModel, add_special_tokens: bool) -> list[int]:
    """Raise `ApiError` if it is longer than the model's context."""
    tokens = model.encode_long(text, add_special_tokens=add_special_tokens)
    if tokens is None:
        raise text_too_long(param, model.max_context)
    return tokens


def _encode_long_chat(chat: Chat, model: ServedModel) -> tuple[list[int], ReasoningState]:
    text = _render(chat, model)
    return encode_long(text, "messages", model, add_special_tokens=False), _reasoning_after(text, model)


def _render(chat: Chat, model: ServedModel) -> str:
    try:
        return model.tokenizer.render_chat(chat)
    except ChatError as error:
        raise bad_parameter("messages", str(error)) from None


def _reasoning_after(prompt: str, model: ServedModel) -> ReasoningState:
    reasoning = model.style.reasoning
    return ReasoningState.NONE if reasoning is None else reasoning.state_after(prompt)


def _num_characters(chat: Chat) -> int:
    """Of the texts in messages and documents. Tools are bounded by their own limit."""
    return sum([_length(message) for message in chat.messages]) + sum([_length(one) for one in chat.documents or ()])


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum([_length(inner) for inner in value.values()])
    return sum([_length(inner) for inner in value]) if isinstance(value, list) else 0
