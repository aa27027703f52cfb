"""Calls as Llama 3 writes them in JSON: an answer that is a call, or calls with semicolons between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from router.chat.calls.call_format import Call, CallGrammar, CallSink
from router.chat.calls.json_machine import BLANKS, Machine, expect, read_call, skip_blanks
from router.chat.calls.marked_json import json_call
from router.chat.calls.typed_values import json_text
from router.chat.tools import Tool, ToolUse

PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True, slots=True)
class LlamaJson:
    """``{"name": ..., "parameters": {...}}; {...}``, with or without ``<|python_tag|>`` before it."""

    name: str = "llama_json"
    openings: str = "{"
    triggers: Sequence[str] = (PYTHON_TAG,)
    markers: Sequence[str] = (PYTHON_TAG,)
    shares_section: bool = True
    call_id_length: int = 24

    def read(self, calls: CallSink, tools: Sequence[Tool]) -> Machine[str]:
        character = yield from skip_blanks()
        while True:
            expect(character, "{")
            yield from read_call(calls.begin, calls.add)
            while (character := (yield)) in BLANKS or character == ";":
                pass
            if character != "{":
                return character

    def write(self, calls: Sequence[Call]) -> str:
        return "; ".join(json_text({"name": name, "parameters": arguments}) for name, arguments in calls)

    def section(self, use: ToolUse, grammar: CallGrammar) -> str:
        call = grammar.rule(" | ".join(json_call(tool, "parameters", grammar) for tool in use.tools))
        more = f' ("; " {call})*' if use.is_parallel else ""
        return f"{call}{more}"
