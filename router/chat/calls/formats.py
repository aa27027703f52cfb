"""All ways to write calls, and which one a model's chat template speaks of."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from router.chat.calls.call_format import CallFormat
from router.chat.calls.harmony import CALL, CHANNEL, Harmony
from router.chat.calls.llama_json import PYTHON_TAG, LlamaJson
from router.chat.calls.marked_json import MarkedJson
from router.chat.calls.mistral import ARGS, TOOL_CALLS, Mistral
from router.chat.calls.pythonic import Pythonic
from router.chat.calls.sectioned import Sectioned
from router.chat.calls.tagged import Tagged

HERMES: Final = MarkedJson("hermes", "<tool_call>", "</tool_call>")
PHI: Final = MarkedJson("phi", "<|tool_call|>", "<|/tool_call|>", is_list=True, blank="")
GRANITE: Final = MarkedJson("granite", "<|tool_call|>", "", is_list=True, blank="")

QWEN_XML: Final = Tagged(
    "qwen_xml",
    "<tool_call>",
    "</tool_call>",
    ("<function=", ">", "</function>"),
    ("<parameter=", ">", "</parameter>"),
    blank="\n",
)
SEED: Final = Tagged(
    "seed",
    "<seed:tool_call>",
    "</seed:tool_call>",
    ("<function=", ">", "</function>"),
    ("<parameter=", ">", "</parameter>"),
)
MINIMAX: Final = Tagged(
    "minimax",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    ('<invoke name="', '">', "</invoke>"),
    ('<parameter name="', '">', "</parameter>"),
    shares_section=True,
)
GLM: Final = Tagged(
    "glm", "<tool_call>", "</tool_call>", ("", "\n", ""), ("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>")
)
DEEPSEEK: Final = Sectioned(
    "deepseek",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    is_fenced=True,
)
KIMI: Final = Sectioned(
    "kimi",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    prefix="functions.",
    has_number=True,
)
FUNCTIONARY: Final = Sectioned("functionary", "", "", "<function=", ">", "</function>")
FUNCTOOLS: Final = MarkedJson("functools", "functools", "", is_list=True, blank="")

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
        QWEN_XML,
        SEED,
        MINIMAX,
        GLM,
        DEEPSEEK,
        replace(DEEPSEEK, name="deepseek_v3_1", is_fenced=False),
        KIMI,
        FUNCTIONARY,
        FUNCTOOLS,
    )
}


HARMONY: Final = Harmony()
ALL: Final[Mapping[str, CallFormat | Harmony]] = {**FORMATS, HARMONY.name: HARMONY}

# What templates say when they teach a format; the first whose signs are all there tells. Several templates mention
# `<|python_tag|>` though they teach lines of Python, so that comes late.
_SIGNS: Final = (
    ((CHANNEL, CALL), "harmony"),
    ((ARGS,), "mistral_apart"),
    ((TOOL_CALLS,), "mistral"),
    (("<|/tool_call|>",), "phi"),
    (("<|tool_call|>",), "granite"),
    (("<seed:tool_call>",), "seed"),
    (("<minimax:tool_call>",), "minimax"),
    ((DEEPSEEK.call_begin, "```json"), "deepseek"),
    ((DEEPSEEK.call_begin,), "deepseek_v3_1"),
    ((KIMI.begin,), "kimi"),
    (("<tool_call>", "<arg_key>"), "glm"),
    (("<tool_call>", "<parameter="), "qwen_xml"),
    (("<tool_call>",), "hermes"),
    (("</function>",), "functionary"),
    (("functools[",), "functools"),
    (("[func_name1(",), "pythonic"),
    (("[func1(",), "pythonic"),
    ((PYTHON_TAG,), "llama_json"),
    (('{"name": function name',), "llama_json"),
)


def calls_of(template: str) -> CallFormat | Harmony | None:
    """Return the format that a chat template teaches its model; None: none that is known here."""
    return next((ALL[name] for signs, name in _SIGNS if all(sign in template for sign in signs)), None)
