"""All ways to write calls, and which one a model's chat template speaks of."""

from collections.abc import Mapping
from typing import Final

from router.chat.calls.call_format import CallFormat
from router.chat.calls.llama_json import PYTHON_TAG, LlamaJson
from router.chat.calls.marked_json import MarkedJson
from router.chat.calls.mistral import ARGS, TOOL_CALLS, Mistral
from router.chat.calls.pythonic import Pythonic

HERMES: Final = MarkedJson("hermes", "<tool_call>", "</tool_call>")
PHI: Final = MarkedJson("phi", "<|tool_call|>", "<|/tool_call|>", is_list=True, blank="")
GRANITE: Final = MarkedJson("granite", "<|tool_call|>", "", is_list=True, blank="")

FORMATS: Final[Mapping[str, CallFormat]] = {
    found.name: found
    for found in (
        HERMES,
        PHI,
        GRANITE,
        LlamaJson(),
        Pythonic(),
        Mistral(),
        Mistral("mistral_apart", has_names_apart=True),
    )
}


# What templates say when they teach a format; the first that is there tells. Several templates mention
# `<|python_tag|>` though they teach lines of Python, so that comes late.
_SIGNS: Final = (
    (ARGS, "mistral_apart"),
    (TOOL_CALLS, "mistral"),
    ("<|/tool_call|>", "phi"),
    ("<|tool_call|>", "granite"),
    ("<tool_call>", "hermes"),
    ("[func_name1(", "pythonic"),
    ("[func1(", "pythonic"),
    (PYTHON_TAG, "llama_json"),
    ('{"name": function name', "llama_json"),
)


def calls_of(template: str) -> CallFormat | None:
    """Return the format that a chat template teaches its model; None: none that is known here."""
    return next((FORMATS[name] for sign, name in _SIGNS if sign in template), None)
