"""What one client sees of one streamed answer: bytes and times in, latencies out."""

from dataclasses import dataclass, field

from bench.load.client.chunks import DONE, Chunk, ChunkChoice, Usage, error_of, error_of_body, read_chunk
from bench.load.client.sse import EventSplitter

OK = 200
MAX_ERROR_BYTES = 4096


@dataclass(slots=True)
class Answer:
    """Feed it `head`, `body` and `end`. Times are whatever clock the caller has.

    ``first_at`` is that of the first event with output, ``last_at`` that of the last one or of what says why it ends;
    ``gaps_s`` lie between events with output of the same choice.
    """

    keeps_text: bool = False
    status: int = 0  # none yet
    headers: dict[str, str] = field(default_factory=dict)
    first_at: float | None = None
    last_at: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    num_chunks: int = 0
    usage: Usage | None = None
    is_done: bool = False
    problem: str | None = None
    texts: list[str] = field(default_factory=list)
    _splitter: EventSplitter = field(default_factory=EventSplitter)
    _last_of: dict[int, float] = field(default_factory=dict)  # choice -> when its last event came
    _empty_at: float | None = None  # the first event of a choice that said nothing
    _refusal: bytes = b""

    def head(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers

    def body(self, data: bytes, now: float) -> None:
        if self.status != OK:
            self._refusal += data[: MAX_ERROR_BYTES - len(self._refusal)]
            return
        for event in self._splitter.feed(data):
            self._take(event, now)

    def end(self, now: float) -> None:
        """The response is whole."""
        if self.status != OK:
            self.problem = error_of_body(self._refusal)
            return
        for event in self._splitter.finish():
            self._take(event, now)
        if self.first_at is None:  # an answer may have nothing to say
            self.first_at = self.last_at = self._empty_at

    @property
    def is_whole(self) -> bool:
        return self.status == OK and self.is_done and self.problem is None and self.first_at is not None

    def _take(self, event: bytes, now: float) -> None:
        if event == DONE:
            self.is_done = True
            return
        try:
            chunk = read_chunk(event)
        except ValueError as error:
            self.problem = self.problem or f"an event that is no chunk ({error}): {event[:80].decode(errors='replace')}"
            return
        self.problem = self.problem or error_of(chunk)
        self.usage = chunk.usage or self.usage
        self._take_choices(chunk, now)

    def _take_choices(self, chunk: Chunk, now: float) -> None:
        for choice in chunk.choices or ():
            if not choice.has_output:
                self._end_silently(choice, now)
                continue
            self.num_chunks += 1
            if self.first_at is None:
                self.first_at = now
            self.last_at = now
            if (before := self._last_of.get(choice.index)) is not None:
                self.gaps_s.append(now - before)
            self._last_of[choice.index] = now
            if self.keeps_text:
                self.texts.append(choice.words)

    def _end_silently(self, choice: ChunkChoice, now: float) -> None:
        """An event without words: of a role, of a token that is none, or of the end."""
        if self._empty_at is None:
            self._empty_at = now
        if choice.finish_reason is not None and self.first_at is not None:
            self.last_at = now
