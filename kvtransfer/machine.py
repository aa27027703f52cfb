"""The interpreter of transition tables that both transfer machines run on."""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from kvtransfer.protocol import DeadlinePassed

STORY_LENGTH = 16

S = TypeVar("S", bound=Enum)
E = TypeVar("E")  # events
F = TypeVar("F")  # effects


class ProtocolError(RuntimeError):
    """An event that the engine may not raise in this state: a bug here, never the peer's doing."""

    def __init__(self, machine: object, event: object, story: list[str]) -> None:
        super().__init__(
            f"{type(event).__name__} is illegal for {machine!r}; last events: {', '.join(story) or 'none'}"
        )
        self.story = story


class Rule(NamedTuple, Generic[S]):
    """One transition: on an event, go to state ``then``, and after that call ``act(machine, event, now)``."""

    then: S
    act: Callable[[Any, Any, float], None]


class Machine(ABC, Generic[S, E, F]):
    """Looks up each event in ``rules``; actions emit effects.

    An event without a rule is counted and ignored if it is in ``tolerated`` (what a peer sends late or twice, and what
    races with an ending), else it raises `ProtocolError`. `_settle` then makes the transitions that need no event.
    """

    rules: ClassVar[Mapping[Any, Mapping[type, Rule[Any]]]]
    tolerated: ClassVar[frozenset[type]]

    def __init__(self, state: S) -> None:
        self.state = state
        self.ignored: defaultdict[str, int] = defaultdict(int)
        self._story: deque[tuple[float, S, str]] = deque(maxlen=STORY_LENGTH)
        self._effects: list[F] = []
        self._deadline: float | None = None
        self._has_changed = True  # since that was worked out

    def handle(self, event: E, now: float) -> list[F]:
        """Take an event; return the effects to carry out, in order. Raise `ProtocolError` if it is illegal here."""
        self._expire(now)
        self._step(event, now)
        return self._take_effects()

    def expire(self, now: float) -> list[F]:
        """Call when `next_deadline` has come. Nothing happens if it has not."""
        self._expire(now)
        return self._take_effects()

    def next_deadline(self) -> float | None:
        """Return when `expire` must be called; None: nothing is awaited. Only events change it, and it is asked for
        often.
        """
        if self._has_changed:
            self._deadline = self._find_deadline()
            self._has_changed = False
        return self._deadline

    @abstractmethod
    def _find_deadline(self) -> float | None:
        """Return the deadline of the present state."""

    @abstractmethod
    def _settle(self, now: float) -> None:
        """Make the transitions that need no event."""

    def _emit(self, effect: F) -> None:
        self._has_changed = True
        self._effects.append(effect)

    def _take_effects(self) -> list[F]:
        effects, self._effects = self._effects, []
        return effects

    def _expire(self, now: float) -> None:
        deadline = self.next_deadline()
        if deadline is not None and now >= deadline:
            self._step(DeadlinePassed(), now)

    def _step(self, event: object, now: float) -> None:
        self._has_changed = True
        rule = self.rules[self.state].get(type(event))
        if rule is None:
            if type(event) not in self.tolerated:
                story = [f"{when:.3f} {state.value}: {name}" for when, state, name in self._story]
                raise ProtocolError(self, event, story)
            self.ignored[type(event).__name__] += 1
            return
        self._story.append((now, self.state, type(event).__name__))
        self.state = rule.then
        rule.act(self, event, now)
        self._settle(now)
