"""The environment in which chat templates run: jinja2's sandbox with what Hugging Face's tools add to it.

Templates come with models, so they are programs of strangers: what they see are plain values, and what they call is
listed here.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


def template_environment() -> ImmutableSandboxedEnvironment:
    """Return a new environment."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment


class _GenerationBlocks(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it shows what it holds.

    The block is a call, as in Hugging Face's tools, so what is set in it stays in it.
    """

    tags = {"generation"}  # noqa: RUF012 (jinja2's own name and type)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_show"), [], [], body).set_lineno(line)

    @staticmethod
    def _show(caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """``dict`` as a function, and not as the class with all that it leads to."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _Namespace(Namespace):
    """Keeps no attribute whose name begins with an underscore. One may be called ``self``."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace keeps no attribute {name!r}")


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
