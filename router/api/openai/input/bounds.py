"""Counts a body's bytes to find out what may be large in it, and how much it costs to read.

A decoder that makes an object of each element costs a hundred times what a look at the bytes does. So the parts of a
large body that could hold any number of elements are counted first. Counts may err, but to one side only: what is
counted as few is few. In a string a quotation mark is always escaped, so marks without a backslash before them tell
how many strings there are. Each string that ends with an escaped backslash looks as if it had one mark, and all
others have two.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from router.api.errors import bad_parameter
from router.api.openai.input.bodies import MAX_CHOICES, SHAPES

MAX_TOKEN_IDS: Final = 262_144  # of all prompts of a body
MAX_TEXTS: Final = 2048  # that are embedded or compared at once
MAX_STRINGS: Final = 65_536  # keys and values of a chat's messages
MAX_SMALL_PART: Final = 65_536  # bytes of JSON
MAX_TOOLS_PART: Final = 262_144  # bytes of JSON: agents offer dozens of tools
MAX_MORE_OF_MESSAGE: Final = 16_384  # bytes of JSON, of a field of a message that only its template knows
MAX_FORM_PART: Final = 98_304  # bytes of JSON, blanks included; a grammar itself has a bound of its own


class _Document(msgspec.Struct):
    text: str


_BLANK: Final = b" \t\n\r"
_TEXTS: Final = msgspec.json.Decoder(list[str])
_DOCUMENTS: Final = msgspec.json.Decoder(list[str | _Document])

Check = Callable[[str, bytes], None]


def check_small(param: str, data: bytes) -> None:
    """Raise `ApiError` if a list or a table of a few numbers or words takes more bytes than those could."""
    _check_size(param, data, MAX_SMALL_PART)


def check_nothing(param: str, data: bytes) -> None:
    """Let anything pass: the field is refused, and never read."""


def check_form(param: str, data: bytes) -> None:
    """Raise `ApiError` if there is more than any form of answers may take."""
    _check_size(param, data, MAX_FORM_PART)


def check_tools(param: str, data: bytes) -> None:
    """Raise `ApiError` if there is more than tools, or documents, may take."""
    _check_size(param, data, MAX_TOOLS_PART)


def _check_size(param: str, data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise bad_parameter(param, f"can take at most {max_bytes} bytes of JSON, not {len(data)}")


def check_messages(param: str, data: bytes) -> None:
    """Raise `ApiError` on more parts than any chat has. Nothing but strings is let through in numbers by its type."""
    if _num_strings(data) > MAX_STRINGS:
        raise bad_parameter(param, f"have too many parts: more than {MAX_STRINGS} keys and texts")


def check_prompt(param: str, data: bytes, most: int = MAX_CHOICES) -> None:
    """Raise `ApiError` on more texts or token ids than the prompts of one body may have. ``most``: of prompts."""
    if not data.startswith(b"["):
        return
    if data[1:64].lstrip(_BLANK).startswith(b'"'):
        _check_texts(param, data, most)
    else:
        check_token_lists(param, data, most)


def check_inputs(param: str, data: bytes) -> None:
    """Raise `ApiError` on more texts or token ids than may be embedded at once, or more parts than a response's input
    may have.
    """
    if data[1:64].lstrip(_BLANK).startswith(b"{"):
        check_messages(param, data)
    else:
        check_prompt(param, data, MAX_TEXTS)


def check_texts(param: str, data: bytes) -> None:
    """Raise `ApiError` on more texts than may be compared at once. Each may be an object with one."""
    if _num_strings(data) > 2 * MAX_TEXTS or data.count(b"[") > 1 + data.count(b'"'):
        raise bad_parameter(param, f"can have at most {MAX_TEXTS} texts")
    if data.startswith(b"["):
        try:
            _DOCUMENTS.decode(data)
        except msgspec.ValidationError:
            raise bad_parameter(param, f"must be {SHAPES[param]}") from None


def _check_texts(param: str, data: bytes, most: int) -> None:
    """What the texts hold cannot be told from what is between them, so they are read: that stops at anything else."""
    if _num_strings(data) > most:
        raise bad_parameter(param, f"can have at most {most} texts")
    try:
        _TEXTS.decode(data)
    except msgspec.ValidationError:
        raise bad_parameter(param, f"must be {SHAPES[param]}") from None


def check_token_lists(param: str, data: bytes, most: int = MAX_CHOICES) -> None:
    """Raise `ApiError` on more token ids, or more lists of them, than one body may have."""
    if b'"' in data:
        raise bad_parameter(param, f"must be {SHAPES[param]}")
    if data.count(b"[") > most + 1:
        raise bad_parameter(param, f"can have at most {most} lists of token ids")
    if data.count(b",") > MAX_TOKEN_IDS:
        raise bad_parameter(param, f"can have at most {MAX_TOKEN_IDS} token ids")


def _num_strings(data: bytes) -> int:
    """At least half of how many there are, and never more than there are."""
    return (data.count(b'"') - data.count(b'\\"')) // 2


# By the names of the fields.
CHECKS: Final[Mapping[str, Check]] = {
    "prompt": check_prompt,
    "tokens": check_token_lists,
    "input": check_inputs,
    "text_1": check_texts,
    "text_2": check_texts,
    "messages": check_messages,
    "system": check_messages,
    "text": check_form,
    "reasoning": check_small,
    "include": check_small,
    "metadata": check_small,
    "thinking": check_small,
    "output_config": check_form,
    "output_format": check_form,
    "stop_sequences": check_small,
    "logit_bias": check_small,
    "stop_token_ids": check_small,
    "stop": check_small,
    "tools": check_tools,
    "documents": check_tools,
    "tool_choice": check_small,
    "chat_template_kwargs": check_small,
    "stream_options": check_small,
    "response_format": check_form,
    "structured_outputs": check_form,
}
# Of fields that mean something else in one body.
OWN_CHECKS: Final[Mapping[str, Mapping[str, Check]]] = {
    "RerankBody": {"documents": check_texts},
    "ResponsesBody": {"prompt": check_nothing},
}
