"""A client of a server with the OpenAI API that notes when each piece of an answer came."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import aiohttp

from mesh.errors import UserError
from router.profiling.experiments import Answered, AnswerPiece, AskedLengths
from router.profiling.prompts import token_ids, words

ANSWER_S: Final = 600.0
CONNECT_S: Final = 10.0
LONGEST_LINE: Final = 1 << 20
MOST_ERROR: Final = 300
PROBE: Final = AskedLengths(32, 4)


class AnswerError(Exception):
    """A request was not answered: with which status, and in whose words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status


@dataclass(slots=True)
class Manners:
    """How the server is to be asked: found out by asking."""

    is_chat: bool = False
    takes_ids: bool = True
    ignores_eos: bool = True
    streams_usage: bool = True
    tokens_per_word: float = 1.0


@dataclass(slots=True)
class ModelClient:
    """Asks one model of a server. ``random`` makes its prompts."""

    session: aiohttp.ClientSession
    url: str
    model: str
    random: Random
    manners: Manners = field(default_factory=Manners)

    async def learn_manners(self) -> None:
        """Raise `UserError` if it cannot be asked in any way."""
        for attempt in MANNERS:
            self.manners = Manners(*attempt)
            try:
                answered = await self.ask(self.prompt(PROBE.num_input), PROBE.num_output)
            except AnswerError as error:
                last = error
                if error.status in (401, 403):
                    break
                continue
            if self.manners.takes_ids and answered.num_input != PROBE.num_input:
                continue
            if not self.manners.takes_ids:
                self.manners.tokens_per_word = max(0.1, answered.num_input / PROBE.num_input)
            return
        raise UserError(f"{self.url}: does not answer for the model {self.model!r}: {last}")

    def prompt(self, num_tokens: int) -> str | list[int]:
        if self.manners.takes_ids:
            return token_ids(self.random, num_tokens)
        return words(self.random, num_tokens, self.manners.tokens_per_word)

    async def ask(
        self, prompt: str | list[int], num_output: int, on_event: Callable[[], None] = lambda: None
    ) -> Answered:
        """Raise `AnswerError`. ``on_event`` hears of each piece."""
        path = "/v1/chat/completions" if self.manners.is_chat else "/v1/completions"
        reader = _Reader(on_event)
        sent_s = time.monotonic()
        try:
            async with self.session.post(
                self.url + path,
                json=self._body(prompt, num_output),
                timeout=aiohttp.ClientTimeout(ANSWER_S, connect=CONNECT_S),
            ) as response:
                if response.status != 200:
                    said = (await response.content.read(LONGEST_LINE)).decode(errors="replace")
                    raise AnswerError(response.status, _message(said))
                async for line in response.content:
                    reader.take(line, time.monotonic())
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise AnswerError(0, str(error) or type(error).__name__) from None
        if not reader.events:
            raise AnswerError(200, reader.problem or "it says nothing")
        num_input = reader.num_input or (len(prompt) if isinstance(prompt, list) else self._guess(prompt))
        return Answered(sent_s, reader.counted(), num_input, reader.num_cached)

    def _guess(self, prompt: str) -> int:
        return round(len(prompt.split()) * self.manners.tokens_per_word)

    def _body(self, prompt: str | list[int], num_output: int) -> dict[str, Any]:
        manners = self.manners
        body: dict[str, Any] = {"model": self.model, "max_tokens": num_output, "temperature": 0, "stream": True}
        body |= {"messages": [{"role": "user", "content": prompt}]} if manners.is_chat else {"prompt": prompt}
        if manners.ignores_eos:
            body["ignore_eos"] = True
        if manners.streams_usage:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return body


MANNERS = (
    (False, True, True, True),
    (False, False, True, True),
    (False, True, False, False),
    (False, False, False, False),
    (True, False, True, True),
    (True, False, False, True),
    (True, False, False, False),
)


@dataclass(slots=True)
class _Reader:
    """Reads the events of one stream."""

    on_event: Callable[[], None]
    events: list[AnswerPiece] = field(default_factory=list)
    num_input: int = 0
    num_output: int = 0  # as the server counts in the end
    num_cached: int = 0
    problem: str = ""

    def take(self, line: bytes, now: float) -> None:
        if not line.startswith(b"data:") or line.strip() == b"data: [DONE]":
            return
        with suppress(ValueError):
            chunk = json.loads(line[5:])
            if isinstance(chunk, dict):
                self._take(chunk, now)

    def _take(self, chunk: Mapping[str, Any], now: float) -> None:
        if chunk.get("error") is not None:
            self.problem = _message(json.dumps(chunk))
        usage = chunk.get("usage")
        num_here = 0
        if isinstance(usage, dict):
            self.num_input = int(usage.get("prompt_tokens") or self.num_input)
            num_here = int(usage.get("completion_tokens") or 0)
            details = usage.get("prompt_tokens_details")
            self.num_cached = int((details or {}).get("cached_tokens") or self.num_cached)
        choices = chunk.get("choices")
        if not choices:
            self.num_output = num_here or self.num_output
        elif num_here or _has_token(choices[0]):
            before = self.events[-1].num_tokens if self.events else 0
            if not num_here or num_here > before:
                self.events.append(AnswerPiece(now, num_here or before + 1))
                self.on_event()

    def counted(self) -> list[AnswerPiece]:
        """The events, with as many tokens in all as the server says, where each seemed to be one."""
        last = self.events[-1].num_tokens
        if self.num_output <= last or last != len(self.events):
            return self.events
        factor = self.num_output / last
        return [AnswerPiece(event.at_s, round(event.num_tokens * factor)) for event in self.events]


def _has_token(choice: Mapping[str, Any]) -> bool:
    """Of a completion any event that does not only end it; of a chat one that says something."""
    delta = choice.get("delta")
    if delta is None:
        return bool(choice.get("text")) or choice.get("finish_reason") is None
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning"))


def _message(said: str) -> str:
    try:
        body = json.loads(said)
        error = body.get("error", body)
        found = error.get("message", said) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        found = said
    return " ".join(str(found).split())[:MOST_ERROR]
