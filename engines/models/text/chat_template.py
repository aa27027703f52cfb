"""Chat templates, rendered as Hugging Face tools render them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engines.models.errors import ModelError


class ChatError(ValueError):
    """Messages that the model's chat template does not take. One line."""


class ChatTemplate:
    """A model's templates by name; ``default`` is for chats, ``tool_use`` (if there is one) for chats with tools."""

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str], origin: Path) -> None:
        environment = _environment()
        try:
            self._templates = {name: environment.from_string(source) for name, source in sources.items()}
        except TemplateSyntaxError as error:
            raise ModelError(f"{origin}: the chat template is malformed: {error}") from error
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        parameters: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. ``parameters`` are further variables of the template. Raises `ChatError`."""
        template = self._templates.get("tool_use" if tools and "tool_use" in self._templates else "default")
        if template is None:
            raise ChatError("the model has no chat template; use /v1/completions")
        variables = self._special_tokens | dict(parameters or {})
        variables |= {"tools": tools, "documents": None} | {"add_generation_prompt": add_generation_prompt}
        try:
            return template.render(variables, messages=[_with_plain_content(message) for message in messages])
        except Exception as error:  # the template is the model's program: whatever it raises is about these messages
            raise ChatError(f"the model's chat template does not take these messages: {_line(error)}") from error


def _with_plain_content(message: Mapping[str, Any]) -> dict[str, Any]:
    """Content in parts becomes one text: the templates of text models want a string."""
    content = message.get("content")
    if not isinstance(content, list):
        return dict(message)
    other = next((part.get("type") for part in content if part.get("type") != "text"), None)
    if other is not None:
        raise ChatError(f"content of type {other!r} is not supported; the model takes text")
    return {**message, "content": "\n".join(part["text"] for part in content)}


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


class _GenerationBlocks(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it shows what it holds."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own name and type)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter, this escapes no HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
