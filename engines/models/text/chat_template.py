"""Chat templates, rendered as Hugging Face tools render them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, Template, TemplateSyntaxError
from msgspec import Struct

from engines.models.errors import ModelError
from engines.models.text.call_arguments import with_objects
from engines.models.text.template_environment import template_environment
from engines.models.text.template_facts import TemplateFacts, facts_of

REASONING_NAMES: Final = ("reasoning_content", "thinking", "reasoning")
_REASONING_NAMES: Final = frozenset(REASONING_NAMES)
_MARK: Final = "CONTINUE_FINAL_MESSAGE_TAG "


class ChatError(ValueError):
    """Messages that the model's chat template does not take. One line."""


class Chat(Struct, frozen=True):
    """What a prompt is made of. ``parameters``: further variables of the template; ``continues``: the answer goes on
    with the last message. Arguments of calls are JSON text, as APIs have them.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continues: bool = False
    parameters: Mapping[str, Any] = {}


class ChatTemplate:
    """A model's templates by name; ``default`` is for chats, ``tool_use`` (if there is one) for chats with tools.

    What it renders equals what transformers' ``apply_chat_template`` renders of the same messages. Arguments of calls
    become objects, which is what nearly all templates want; those that fail on objects get the text as it came.
    """

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str], origin: Path) -> None:
        environment = template_environment()
        try:
            self._templates = {name: _compiled(source, environment) for name, source in sources.items()}
        except TemplateSyntaxError as error:
            raise ModelError(f"{origin}: the chat template is malformed: {error}") from error
        self._special_tokens = dict(special_tokens)
        self._facts = {
            name: facts_of(source, environment, takes_calls=_shows_calls(self._templates[name], special_tokens))
            for name, source in sources.items()
        }
        self.sources: Mapping[str, str] = dict(sources)

    def facts(self, *, has_tools: bool) -> TemplateFacts | None:
        """Return what the template of a chat reads. None: the model has no template."""
        return self._facts.get(self._name(has_tools))

    def _name(self, has_tools: bool) -> str:
        return "tool_use" if has_tools and "tool_use" in self._templates else "default"

    def render(self, chat: Chat) -> str:
        """Return the prompt. Raise `ChatError` if the template does not take the chat."""
        name = self._name(bool(chat.tools))
        template, facts = self._templates.get(name), self._facts.get(name)
        if template is None or facts is None:
            raise ChatError("the model has no chat template; use /v1/completions")
        messages = list(chat.messages) if facts.takes_parts else [_with_plain_content(one) for one in chat.messages]
        if chat.continues:
            messages[-1] = _marked(messages[-1])
        variables = {
            **self._special_tokens,
            **chat.parameters,
            "tools": chat.tools,
            "documents": chat.documents,
            "add_generation_prompt": chat.add_generation_prompt,
        }
        text = _rendered(template, variables, [_with_reasoning(message) for message in messages])
        return _up_to_mark(text, chat.messages[-1]) if chat.continues else text


def _compiled(source: str, environment: Environment) -> Template:
    """Its globals are copied for each text, which takes jinja2's map of maps longer than all else."""
    template = environment.from_string(source)
    template.globals = dict(template.globals)
    return template


def _shows_calls(template: Template, special_tokens: Mapping[str, str]) -> bool:
    """Try it: some templates read calls and leave them out, as beside content."""
    function = {"name": "tried_name", "arguments": '{"key": "tried_value"}'}
    call = {"id": "call00000", "type": "function", "function": function}
    messages: list[Mapping[str, Any]] = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "tried_words", "tool_calls": [call]},
        {"role": "tool", "content": "tried_result", "tool_call_id": "call00000", "name": "tried_name"},
    ]
    try:
        text = _rendered(template, {**special_tokens, "add_generation_prompt": True}, messages)
    except ChatError:
        return False
    return all(f"tried_{part}" in text for part in ("name", "value", "words", "result"))


def _rendered(template: Template, variables: Mapping[str, Any], messages: list[Mapping[str, Any]]) -> str:
    objects = [with_objects(message) for message in messages]
    try:
        return template.render(variables, messages=objects)
    except Exception as error:  # the template is the model's program: whatever it raises is about these messages
        if objects != messages:
            with suppress(Exception):
                return template.render(variables, messages=messages)
        raise ChatError(f"the model's chat template does not take these messages: {_line(error)}") from error


def _with_plain_content(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Content in parts becomes one text: the templates of text models want a string."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    other = next((part.get("type") for part in content if part.get("type") != "text"), None)
    if other is not None:
        raise ChatError(f"content of type {other!r} is not supported; the model takes text")
    return {**message, "content": "\n".join(part["text"] for part in content)}


def _with_reasoning(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clients and templates know reasoning by several names, so it is there by the two that templates read."""
    if _REASONING_NAMES.isdisjoint(message):
        return message
    said = next((message[name] for name in REASONING_NAMES if message.get(name) is not None), None)
    return message if said is None else {"thinking": said, **message, "reasoning_content": said}


def _marked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the last message with a mark where it ends, so that what a template puts behind it can be cut off."""
    content = message.get("content")
    if isinstance(content, str) and content:
        return {**message, "content": content + _MARK}
    if isinstance(content, list) and content:
        *first, last = content
        return {**message, "content": [*first, {**last, "text": last["text"] + _MARK}]}
    raise ChatError("the last message has no content to continue")


def _up_to_mark(text: str, last: Mapping[str, Any]) -> str:
    content = last["content"]
    said = content if isinstance(content, str) else content[-1]["text"]
    at = text.rfind(_MARK.strip())
    if at < 0 or said.strip() not in text:
        raise ChatError("the model's chat template does not show the last message as it is, so it cannot be continued")
    return text[:at] if text.startswith(_MARK, at) else text[:at].rstrip()


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
