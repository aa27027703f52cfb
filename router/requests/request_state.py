"""Holds the parts of a request in flight: each holds what belongs together, and changes it in one place."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf

from mesh.rules import Lateness
from mesh.wire.requests import Epoch
from router.history.lengths import Prediction
from router.policies.policy import Dispatch
from router.view.known_prefixes import Brought

ANY_HOP = 2**31 - 1
BACKOFF_S = 0.02  # how long an engine is avoided after its first refusal; doubles with each
MAX_BACKOFF_S = 1.0
PATIENCE_S = 600.0  # for which one may be late that is to be served all the same
SOON_TOKENS = 16  # from one death of an engine to the next


class RequestPhase(Enum):
    WAITING = auto()  # here, for an engine to send it to
    SENT = auto()  # for the engine's answer
    RUNNING = auto()


@dataclass(slots=True)
class Hints:
    """What policies may go by: how long the answer is likely to be, and what of the prompt engines may have cached."""

    answer: Prediction
    prefix: tuple[int, ...] = ()  # names of the prompt's blocks, if the policy asks for them
    brought: Brought = field(default_factory=dict)  # by the last dispatch, if it is not refused


@dataclass(slots=True)
class TokenDeadline:
    """The time by which the first token is promised; after a loss, the next one. It may be ``grace_s`` late while it
    waits.
    """

    at: float
    grace_s: float
    rejects: bool = False  # it is refused if it is late, though an engine has it
    num_tokens: int = -1  # that had come when the deadline was last moved

    def follow(self, late: Lateness | None, policys_grace_s: float) -> None:
        """Take the request's own rule for late ones, or else the policy's."""
        own = {Lateness.SERVE: PATIENCE_S, Lateness.REJECT: 0.0}
        self.grace_s = policys_grace_s if late is None else own[late]
        self.rejects = late is Lateness.REJECT

    def move(self, num_tokens: int, slo_ttft_s: float, now: float) -> None:
        """The next token has the promise of a first one.

        A request that got no token since the last such promise keeps that one, and so its place before later ones.
        """
        if num_tokens > self.num_tokens:
            self.at, self.num_tokens = max(self.at, now + slo_ttft_s), num_tokens


@dataclass(slots=True)
class Assignment:
    """Which engines hold the request or are about to, by which dispatch. ``attempt`` counts dispatches from 0."""

    phase: RequestPhase = RequestPhase.WAITING
    attempt: int = -1
    dispatch: Dispatch | None = None
    engines: tuple[str, ...] = ()
    sent_at: float = 0.0
    is_proven: bool = False  # the owner has sent a token of it
    was_recalled: bool = False  # before it began: once in its life

    @property
    def is_waiting(self) -> bool:
        return self.phase is RequestPhase.WAITING

    @property
    def any_epoch(self) -> Epoch:
        """Whatever runs of this attempt and earlier ones."""
        return Epoch(self.attempt, ANY_HOP)

    def send(self, dispatch: Dispatch, now: float) -> None:
        """Start the next attempt."""
        self.attempt += 1
        self.phase, self.dispatch, self.sent_at, self.is_proven = RequestPhase.SENT, dispatch, now, False
        self.engines = tuple(dict.fromkeys((dispatch.prefill_engine, dispatch.decode_engine)))

    def own(self, engine: str) -> bool:
        """This engine alone has the request. Returns whether that is new."""
        is_new = self.engines != (engine,)
        if is_new:
            self.is_proven = False
        self.phase, self.engines = RequestPhase.RUNNING, (engine,)
        return is_new

    def leave(self) -> None:
        """No engine has the request any more."""
        self.phase, self.engines = RequestPhase.WAITING, ()


@dataclass(slots=True)
class Contact:
    """The times at which the engines of a request were heard of, and asked about it."""

    progress_at: float = 0.0  # the last news of the request
    held_at: float = -inf  # an engine said that it has the request, and no more
    asked_at: float = -inf
    denied: set[str] = field(default_factory=set)  # engines that said since then that they have not

    @property
    def heard_at(self) -> float:
        return max(self.progress_at, self.held_at)

    def ask(self, now: float) -> None:
        self.asked_at, self.denied = now, set()


@dataclass(slots=True)
class Losses:
    """What has gone wrong with a request so far, and which engines it avoids for that."""

    num_refusals: int = 0
    num_losses: int = 0  # of engines and of messages
    num_deaths: int = 0  # of engines, each soon after the one before
    num_failed_steps: int = 0  # that computed nothing but this request
    failed_on: set[str] = field(default_factory=set)  # engines with such a step
    num_tokens_at_death: int = 0
    num_tokens_at_loss: int = -1
    fruitless_since: float = inf  # no token came between any two losses since
    is_recovering: bool = False  # the request had begun somewhere: the client is not to notice
    avoided: dict[str, float] = field(default_factory=dict)  # until when, by engine

    def count(self, num_tokens: int, now: float, *, died: bool) -> None:
        """Count one more loss. ``num_tokens``: that came until now, on all engines; ``died``: the engine did."""
        self.is_recovering = True
        self.num_losses += 1
        if num_tokens > self.num_tokens_at_loss:
            self.num_losses, self.fruitless_since = 1, now
        self.num_tokens_at_loss = num_tokens
        if died:
            is_soon = num_tokens < self.num_tokens_at_death + SOON_TOKENS
            self.num_deaths = self.num_deaths + 1 if is_soon else 1
            self.num_tokens_at_death = num_tokens

    def avoid(self, engines: Collection[str], now: float) -> None:
        """Avoid these engines for a moment, longer each time."""
        backoff_s = min(BACKOFF_S * 2 ** (self.num_refusals + self.num_losses), MAX_BACKOFF_S)
        self.avoided = {engine: until for engine, until in self.avoided.items() if until > now}
        self.avoided |= dict.fromkeys(engines, now + backoff_s)

    def to_avoid(self, engines: Collection[str]) -> set[str]:
        """Return those whose step failed, if ``engines`` has any other: to ask that one says more."""
        return self.failed_on if any(engine not in self.failed_on for engine in engines) else set()

    def avoids(self, now: float) -> set[str]:
        return {engine for engine, until in self.avoided.items() if until > now}


@dataclass(slots=True)
class QueueState:
    """How a request waits in the gateway."""

    reason: str = ""  # that the policy gave last
    has_slice_ended: bool = False  # it waits for its next slice, in turn: nobody failed it
    engine_seen_at: float = -inf  # that could take the request, had it room
    was_held: bool = False  # while engines had others; it arrives there as if it had come when its turn did
    turn_at: float = -inf  # when that was

    def take_turn(self, now: float) -> None:
        self.reason = ""
        if self.was_held and self.turn_at == -inf:
            self.turn_at = now


@dataclass(slots=True)
class TenantCharge:
    """The tenant of a request, and what of it was counted for that tenant."""

    tenant: str = ""
    has_prompt: bool = False
    num_tokens: int = 0  # of the answer
