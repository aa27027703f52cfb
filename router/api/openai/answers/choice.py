"""One choice of an answer: the tokens of one generation, as text."""

import msgspec

from engines.models.text.detokenizer import Detokenizer
from engines.models.text.stop_strings import StopChecker
from mesh.wire.images import PlacedImage
from mesh.wire.requests import FinishReason, TokenLogprobs
from router.chat.answer_reader import AnswerReader
from router.chat.channel_reader import ChannelReader
from router.chat.deltas import Delta
from router.chat.reasoning import ReasoningState
from router.generation import Generation, TokenBatch


class Prompt(msgspec.Struct, frozen=True):
    """A prompt as token ids, and as the text that ``echo`` repeats.
    ``reasoning``: what it says of the answer's. ``images``: that it shows.
    """

    tokens: list[int]
    text: str = ""
    reasoning: ReasoningState = ReasoningState.NONE
    images: tuple[PlacedImage, ...] = ()


class Piece(msgspec.Struct, frozen=True):
    """What new tokens add to a choice. ``finish`` is set on the last one. ``deltas``: what ``text`` is to the parts of
    an answer that is read; None: it is all content.
    """

    text: str
    finish: FinishReason | None
    logprobs: tuple[TokenLogprobs, ...]
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    deltas: list[Delta] | None = None


class Choice:
    """Turns the batches of a generation into pieces of text, up to a stop string.

    With a ``reader``, the text is taken apart, too. A stop token ends a generation and is not part of its text.
    ``min_tokens``: no stop string counts before.
    """

    def __init__(
        self,
        index: int,
        generation: Generation,
        prompt: Prompt,
        detokenizer: Detokenizer,
        stops: StopChecker | None,
        *,
        min_tokens: int = 0,
        echo: bool = False,
        only_echo: bool = False,
        reader: AnswerReader | ChannelReader | None = None,
    ) -> None:
        self.index = index
        self.generation = generation
        self.prompt = prompt
        self.num_tokens = 0
        self.num_cached_tokens = 0
        self.finish: FinishReason | None = None
        self.stop: str | None = None  # the stop string that ended it
        self._detokenizer = detokenizer
        self._stops = stops
        self._min_tokens = min_tokens
        self._echo = echo
        self._only_echo = only_echo
        self._reader = reader
        self.num_reasoning_tokens = 0

    def __repr__(self) -> str:
        return f"<Choice {self.index} tokens={self.num_tokens} finish={self.finish}>"

    def feed(self, batch: TokenBatch) -> Piece:
        """The text that a batch adds. After a piece with ``finish``, feed nothing more."""
        first = self.num_tokens == 0 and self.finish is None
        self.num_cached_tokens = batch.num_cached_tokens if first else self.num_cached_tokens
        if self._only_echo:
            return self._end(self.prompt.text, FinishReason.LENGTH, (), batch)
        if self._stops is None and batch.finish is None:
            text, num_taken, finish = self._detokenizer.feed(batch.tokens), len(batch.tokens), None
        else:
            text, num_taken, finish = self._decode(batch)
        self.num_tokens += num_taken
        logprobs = (batch.logprobs or ())[:num_taken]
        if self._reader is not None:
            return self._read(self._reader, text, num_taken, finish, logprobs, batch.prompt_logprobs)
        text = self.prompt.text + text if first and self._echo else text
        if finish is not None:
            return self._end(text, finish, logprobs, batch)
        return Piece(text, None, logprobs, batch.prompt_logprobs)

    def _read(
        self,
        reader: AnswerReader | ChannelReader,
        text: str,
        num_tokens: int,
        finish: FinishReason | None,
        logprobs: tuple[TokenLogprobs, ...],
        prompt_logprobs: tuple[TokenLogprobs | None, ...] | None,
    ) -> Piece:
        """Tokens that end reasoning count as reasoning, with those that come together with them."""
        was_reasoning = reader.is_reasoning
        deltas = reader.feed(text)
        if was_reasoning or reader.is_reasoning:
            self.num_reasoning_tokens += num_tokens
        if finish is not None:
            deltas += reader.finish()
            self.finish = finish
        return Piece(text, finish, logprobs, prompt_logprobs, deltas)

    @property
    def is_read(self) -> bool:
        """Say whether its text is taken apart."""
        return self._reader is not None

    @property
    def calls_tools(self) -> bool:
        return self._reader is not None and self._reader.num_calls > 0

    def _end(self, text: str, finish: FinishReason, logprobs: tuple[TokenLogprobs, ...], batch: TokenBatch) -> Piece:
        self.finish = finish
        return Piece(text, finish, logprobs, batch.prompt_logprobs)

    def _decode(self, batch: TokenBatch) -> tuple[str, int, FinishReason | None]:
        """Text, the number of tokens that count, and whether the choice ends with them."""
        visible = batch.tokens[:-1] if batch.finish is FinishReason.STOP else batch.tokens
        if self._stops is None:
            text = self._detokenizer.feed(visible)
            if batch.finish is not None:
                text += self._detokenizer.finish()
            return text, len(batch.tokens), batch.finish
        return self._decode_up_to_stop(batch, visible, self._stops)

    def _decode_up_to_stop(
        self, batch: TokenBatch, visible: tuple[int, ...], stops: StopChecker
    ) -> tuple[str, int, FinishReason | None]:
        """Token by token, so that exactly those up to the stop string count."""
        shown = ""
        for num_taken, token in enumerate(visible, start=1):
            text = self._detokenizer.feed((token,))
            if self.num_tokens + num_taken <= self._min_tokens:
                shown += text
                continue
            checked = stops.feed(text)
            shown += checked.text
            if checked.stop is not None:
                self.stop = checked.stop
                return shown, num_taken, FinishReason.STOP
        if batch.finish is not None:
            shown += stops.feed(self._detokenizer.finish()).text + stops.finish()
        return shown, len(batch.tokens), batch.finish
