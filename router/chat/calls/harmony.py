"""Answers in channels, as gpt-oss writes them (OpenAI's harmony format).

An answer is a row of messages, each with a head and a body: ``<|channel|>analysis<|message|>...<|end|>`` is reasoning,
``<|channel|>final<|message|>...`` is for the user, and so is ``commentary`` without a recipient. A call names its
recipient, ``to=functions.NAME``, before its channel or after it, and ends with ``<|call|>``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from router.chat.calls.call_format import Call
from router.chat.calls.typed_values import json_text

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
ENDS: Final = (END, CALL, RETURN)
FUNCTIONS: Final = "functions."  # before the names of a client's tools
NEXT: Final = f"{START}assistant"  # begins the next message of an answer


@dataclass(frozen=True, slots=True)
class Harmony:
    """The channels of an answer. What `router.chat.channel_reader` reads and `router.chat.channel_grammar` allows."""

    name: str = "harmony"
    markers: Sequence[str] = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)
    call_id_length: int = 24

    def write(self, calls: Sequence[Call]) -> str:
        """Return calls as models write them, each a message, the first after its prompt."""
        return NEXT.join(
            f" to={FUNCTIONS}{name}{CHANNEL}commentary json{MESSAGE}{json_text(arguments)}{CALL}"
            for name, arguments in calls
        )
