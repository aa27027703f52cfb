"""One API call to a server, beside its request: what is asked there, and what came. It never leaves the process.

The request itself (`RequestSpec`) takes the way of all requests, with numbers in the place of tokens. The API registers
a call under its id before it submits it. The adapter of the server that gets the request finds it there, and puts in
the pieces of the answer. The API takes them out as the router delivers their tokens.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec

from mesh.wire.requests import RequestSpec
from router.servers.stream.chunks import AnswerChunk, ChunkChoice, Rewriter, ServerUsage, has_any

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
EVENT_BYTES: Final = 64  # of memory, beside an event's own bytes

Fields = Mapping[str, msgspec.Raw]
Headers = tuple[tuple[str, str], ...]


class AnswerForm(Enum):
    """How an answer comes."""

    CHUNKS = auto()  # events with chunks of OpenAI's, which are read
    EVENTS = auto()  # events of another API, which are passed on as they are
    WHOLE = auto()  # in one piece


@dataclass(frozen=True, slots=True)
class CallBody:
    """What a client asked for: every field as it was sent. ``wants_usage``: in an event of its own."""

    path: str
    fields: Fields
    form: AnswerForm
    wants_usage: bool = False
    wants_token_ids: bool = False
    headers: Headers = ()


class ServerAnswer(msgspec.Struct, frozen=True):
    """An answer in one piece: what was asked for, or the server's own word on why not."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True, eq=False)
class SaidSoFar:
    """What an answer said, for a server that has to go on with it."""

    prompt_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    is_plain: bool = True  # text alone
    can_be_compared: bool = True  # one choice, and text or reasoning alone

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        return "".join(self.reasonings)

    def add(self, chunk: AnswerChunk) -> None:
        """The client is to get this."""
        if not self.prompt_ids:
            self.prompt_ids = chunk.prompt_ids or []
        for choice in chunk.choices:
            if choice.said:
                self.texts.append(choice.said)
            if choice.token_ids:
                self.token_ids += choice.token_ids
            if not choice.is_plain:
                self._add_special(choice)
            if choice.index:
                self.can_be_compared = False

    def _add_special(self, choice: ChunkChoice) -> None:
        self.is_plain = False
        assert choice.delta is not None
        if choice.delta.has_parts or has_any(choice.delta.tool_calls):
            self.can_be_compared = False
        self.reasonings.append(choice.delta.reasoning_content or choice.delta.reasoning or "")


@dataclass(slots=True, eq=False)
class ForwardedCall:
    """A call and its answer so far. ``pieces``: events that the client has not got, each with the number of tokens
    up to its end.
    """

    id: str
    body: CallBody
    rewriter: Rewriter
    pieces: deque[tuple[int, bytes]] = field(default_factory=deque)
    pending_bytes: int = 0
    num_tokens: int = 0
    num_attempts: int = 0
    bound: int = 2**20  # tokens of the answer, after which it is cut off
    num_choices: int = 1  # that the answer has
    most_tokens: int | None = None  # of the answer, if the client says so
    max_context: int | None = None  # tokens of prompt and answer, if that is known
    is_estimated: bool = False  # how long its prompt is
    said: SaidSoFar = field(default_factory=SaidSoFar)
    seams: list[dict[str, object]] = field(default_factory=list)
    usage: ServerUsage | None = None
    answer: ServerAnswer | None = None

    @property
    def has_begun(self) -> bool:
        """Say whether the client may have got anything of the answer."""
        return self.num_tokens > 0

    def fitting(self, spec: RequestSpec, pool: int) -> RequestSpec:
        """Return its request. A prompt whose length is estimated fits into ``pool`` tokens of KV memory, beside the
        answer: the server itself says what is too long for it.
        """
        most = max(pool // 2, pool - spec.sampling.max_tokens - 1)
        if not self.is_estimated or not pool or len(spec.prompt) <= most:
            return spec
        return msgspec.structs.replace(spec, prompt=spec.prompt[:most])

    def begin(self) -> None:
        """It is sent to a server, anew perhaps: nothing that a client has not got of earlier ones counts."""
        self.num_attempts += 1
        self.usage = self.answer = None
        if self.num_attempts > 1 and not self.has_begun:
            self.said = SaidSoFar()
            self.pieces.clear()
            self.pending_bytes = 0

    def note_seam(self, way: str) -> None:
        """Another server goes on from here. One that brought nothing leaves no seam."""
        self.seams = [seam for seam in self.seams if seam["at"] != self.num_tokens]
        self.seams.append({"at": self.num_tokens, "by": way})

    def put(self, piece: bytes, num_tokens: int) -> None:
        """An event came, with so many tokens."""
        self.num_tokens += num_tokens
        self.pieces.append((self.num_tokens, piece))
        self.pending_bytes += len(piece) + EVENT_BYTES

    def take(self, num_tokens: int) -> bytes:
        """Return the events with the first ``num_tokens`` tokens, those that were taken before left out."""
        taken = []
        while self.pieces and self.pieces[0][0] <= num_tokens:
            taken.append(self.pieces.popleft()[1])
        self.pending_bytes -= sum(map(len, taken)) + EVENT_BYTES * len(taken)
        return b"".join(taken)


class ForwardedCalls:
    """The calls of one gateway that are in flight, by the ids of their requests."""

    def __init__(self) -> None:
        self._calls: dict[str, ForwardedCall] = {}

    def __repr__(self) -> str:
        return f"<ForwardedCalls {len(self._calls)} in flight>"

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ForwardedCall) -> None:
        self._calls[call.id] = call

    def find(self, request: str) -> ForwardedCall | None:
        return self._calls.get(request)

    def remove(self, request: str) -> None:
        self._calls.pop(request, None)
