"""Calls whose arguments stand bare between tags: Qwen3-Coder, Qwen3.5, Seed-OSS, MiniMax, GLM."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import BLANKS, Machine, MalformedCallError
from router.chat.calls.tags import one_of, read_until
from router.chat.calls.typed_values import is_text, json_text, property_of, read_value, schema_of
from router.chat.tools import Schema, Tool, ToolUse

_KEY: Final = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/"


@dataclass(frozen=True, slots=True)
class Tagged:
    """``begin<function=NAME><parameter=KEY>VALUE</parameter>...</function>end``.

    Text is written as it is, other values as JSON; the tool's schema says which it is. Text cannot hold the tag that
    ends it.
    """

    name: str
    begin: str
    end: str
    call: tuple[str, str, str]  # before the name, after it, and at the end of a call
    argument: tuple[str, str, str]  # before the key, between key and value, and after the value
    blank: str = ""  # beside a value
    shares_section: bool = False
    openings: str = ""
    call_id_length: int = 24

    @property
    def triggers(self) -> Sequence[str]:
        return (self.begin,)

    @property
    def markers(self) -> Sequence[str]:
        tags = (self.begin, self.end, *self.call, *self.argument)
        return tuple(dict.fromkeys(tag for tag in tags if tag.startswith("<") and tag.endswith(">")))

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        before, after, end = self.call
        yield from self._pass_head(before)
        while True:
            name = (yield from read_until(after)).strip(BLANKS)
            if not name:
                raise MalformedCallError("a call without a name")
            yield from self._read_arguments(name, calls, schema_of(tools, name), end or self.end)
            if not end or (yield from one_of((before, self.end))) == self.end:
                return ""

    def _pass_head(self, before: str) -> Machine[None]:
        if before:
            yield from one_of((before,))

    def _read_arguments(self, name: str, calls: CallSink, schema: Schema, end: str) -> Machine[None]:
        before, between, after = self.argument
        calls.begin(name)
        calls.add("{")
        separator = ""
        while (yield from one_of((before, end))) == before:
            key = yield from read_until(between.strip(BLANKS))
            key = key.strip(BLANKS)
            calls.add(f"{separator}{json_text(key)}: ")
            yield from read_value(after, self.blank, property_of(schema, key), schema, calls.add)
            separator = ", "
        calls.add("}")

    def write(self, calls: Sequence[Call]) -> str:
        written = [self._written(name, arguments) for name, arguments in calls]
        sections = ["\n".join(written)] if self.shares_section else written
        first, last = "\n" if self.call[0] else "", "\n" if self.call[2] else ""
        return "\n".join(f"{self.begin}{first}{section}{last}{self.end}" for section in sections)

    def _written(self, name: str, arguments: Mapping[str, Any]) -> str:
        (before, after, end), (open_key, between, close) = self.call, self.argument
        head = f"{before}{name}{after}" + ("" if after == "\n" else "\n")
        values = [
            f"{open_key}{key}{between}{self.blank}{_bare(value)}{self.blank}{close}\n"
            for key, value in arguments.items()
        ]
        return f"{head}{''.join(values)}{end}"

    # --- grammar ------------------------------------------------------------------------------------------------------

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        call = grammar.rule(" | ".join(self._call(tool, grammar) for tool in use.tools))
        more = f' ("\\n" {call})*' if use.is_parallel and self.shares_section else ""
        first = '"\\n" ' if self.call[0] else ""
        last = f'"\\n" {grammar.literal(self.end)}' if self.call[2] else grammar.literal(self.end)
        return f"{first}{call}{more} {last}"

    def _call(self, tool: Tool, grammar: CallGrammar) -> str:
        before, after, end = self.call
        head = grammar.literal(f"{before}{tool.name}{after}" + ("" if after == "\n" else "\n"))
        return f"{head} {self._arguments(tool.schema, grammar)} {grammar.literal(end)}".strip()

    def _arguments(self, schema: Schema, grammar: CallGrammar) -> str:
        """Return the terms for a call's arguments, in the schema's order."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            if schema.get("additionalProperties") is False:
                return ""
            return f"({self._argument(_KEY, self._text(grammar), grammar)})*"
        required = schema.get("required") or ()
        terms = [
            (self._argument(json.dumps(key), self._value(value, schema, grammar), grammar), key in required)
            for key, value in properties.items()
        ]
        return " ".join(term if is_required else f"({term})?" for term, is_required in terms)

    def _argument(self, key: str, value: str, grammar: CallGrammar) -> str:
        before, between, _ = self.argument
        return f'{grammar.literal(before)} {key} {grammar.literal(between + self.blank)} {value} "\\n"'

    def _value(self, schema: Any, root: Schema, grammar: CallGrammar) -> str:
        """Return the terms for a value and what ends it."""
        if not is_text(schema, root):
            definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
            whole = {**schema, **definitions} if isinstance(schema, Mapping) else schema
            return f"{grammar.schema(whole)} {grammar.literal(self.blank + self.argument[2])}"
        options = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        if options:
            rule = grammar.rule(" | ".join(json.dumps(option) for option in options))
            return f"{rule} {grammar.literal(self.blank + self.argument[2])}"
        return self._text(grammar)

    def _text(self, grammar: CallGrammar) -> str:
        return grammar.until(self.blank + self.argument[2])


def _bare(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
