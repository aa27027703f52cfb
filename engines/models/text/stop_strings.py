"""Stop strings in a stream of text."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_START = 0
_NO_WAY_ON = "\ud800"  # a surrogate, which no text has


@dataclass(frozen=True, slots=True)
class Checked:
    """Text that may be shown now, and the stop string that ended it."""

    text: str
    stop: str | None = None


class StopStrings:
    """Stop strings as the automaton of Aho and Corasick ("Efficient string matching", 1975).

    A state is the longest end of a text that begins a stop string. Built once for a call; its choices share it.
    Building and following it take time in proportion to the characters, however strings and text repeat themselves.
    """

    __slots__ = ("_branches", "_depths", "_falls", "_longest_ends", "_onward")

    def __init__(self, stops: Sequence[str]) -> None:
        """Prepare the search for strings. ``stops`` are not empty strings, of at most 65535 characters in all."""
        self._depths = array("H", [0])  # by state: the characters that it stands for
        self._longest_ends = array("H", [0])  # the length of the longest stop string that it ends with; 0: none
        self._onward = ""  # the character that leads to the state with the next number
        self._branches: dict[tuple[int, str], int] = {}  # other ways on: at most one a stop string
        ways = self._plant(stops)
        self._falls = array("H", bytes(2 * len(self._depths)))  # the state of the longest end that is shorter
        self._link(ways)

    def __repr__(self) -> str:
        return f"<StopStrings states={len(self._depths)}>"

    def follow(self, state: int, text: str) -> tuple[int, int]:
        """The state after a text, and how many of its characters led there: it ends with the first stop string."""
        onward, branches, falls, longest_ends = self._onward, self._branches, self._falls, self._longest_ends
        for num_taken, character in enumerate(text, start=1):
            while onward[state] != character:
                way = branches.get((state, character))
                if way is not None or state == _START:
                    state = way or _START
                    break
                state = falls[state]
            else:
                state += 1
            if longest_ends[state]:
                return state, num_taken
        return state, len(text)

    def depth(self, state: int) -> int:
        """The number of characters at the end of the text that begin a stop string."""
        return self._depths[state]

    def longest_end(self, state: int) -> int:
        """The length of the longest stop string that the text ends with; 0: with none."""
        return self._longest_ends[state]

    def _plant(self, stops: Sequence[str]) -> list[tuple[int, str, int]]:
        """Number the states along the strings; answer the ways between them as (from, character, to)."""
        ways: list[tuple[int, str, int]] = []
        onward = [_NO_WAY_ON]
        for stop in stops:
            state = _START
            for character in stop:
                known = state + 1 if onward[state] == character else self._branches.get((state, character))
                state = self._grow(ways, onward, state, character) if known is None else known
            self._longest_ends[state] = len(stop)
        self._onward = "".join(onward)
        return ways

    def _grow(self, ways: list[tuple[int, str, int]], onward: list[str], state: int, character: str) -> int:
        new = len(onward)
        if new == state + 1:
            onward[state] = character
        else:
            self._branches[state, character] = new
        onward.append(_NO_WAY_ON)
        self._depths.append(self._depths[state] + 1)
        self._longest_ends.append(0)
        ways.append((state, character, new))
        return new

    def _link(self, ways: list[tuple[int, str, int]]) -> None:
        """Shorter ends come first, since those of longer ones follow from them."""
        ways.sort(key=lambda way: self._depths[way[2]])
        for state, character, new in ways:
            fall = _START if state == _START else self.follow(self._falls[state], character)[0]
            self._falls[new] = fall
            self._longest_ends[new] = self._longest_ends[new] or self._longest_ends[fall]


class StopChecker:
    """Ends a text before the stop string that is complete first, and holds back what may become one.

    The outcome does not depend on how the text is cut into pieces. Of stop strings that end at the same place, the
    longest counts.
    """

    __slots__ = ("_held", "_state", "_stops")

    def __init__(self, stops: StopStrings) -> None:
        self._stops = stops
        self._state = _START
        self._held = ""

    def feed(self, text: str) -> Checked:
        """Feed nothing more after a stop string was found."""
        self._state, num_taken = self._stops.follow(self._state, text)
        whole = self._held + text
        if length := self._stops.longest_end(self._state):
            end = len(self._held) + num_taken
            self._held = ""
            return Checked(whole[: end - length], whole[end - length : end])
        cut = len(whole) - self._stops.depth(self._state)
        self._held = whole[cut:]
        return Checked(whole[:cut])

    def finish(self) -> str:
        """Return the text that was held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held
