"""Finds requests that should go to another engine as answers came out otherwise (Aladdin, algorithm 2).

An engine's error is how much context (l_e) and how many requests (b_e) it has more than was expected when they were put
there. By equation 4 both make its steps longer: alpha l_e + beta b_e + c = 0, with alpha and beta seconds for a token
and for a request. The line's distance from the origin, |c| / sqrt(alpha^2 + beta^2), says how far the engine is off.
A request that moves takes its expected answer and one request along. Moves are made one by one, each the one that
brings the sum of the distances down most, until none does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """The line of errors of one engine. ``per_token_s`` and ``per_request_s``: of a decode step."""

    per_token_s: float
    per_request_s: float
    num_tokens: float
    num_requests: float

    @property
    def distance(self) -> float:
        """Return the signed distance: above 0, more is there than was expected."""
        norm = hypot(self.per_token_s, self.per_request_s)
        return (self.per_token_s * self.num_tokens + self.per_request_s * self.num_requests) / norm if norm else 0.0

    def moved(self, num_tokens: int, num_requests: int) -> "ErrorLine":
        return ErrorLine(
            self.per_token_s, self.per_request_s, self.num_tokens + num_tokens, self.num_requests + num_requests
        )


@dataclass(frozen=True, slots=True)
class Movable:
    """A request that has not begun on its engine."""

    request: str
    engine: str
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class RequestMove:
    request: str
    origin: str
    to: str


def total_distance(lines: Mapping[str, ErrorLine]) -> float:
    return sum(abs(line.distance) for line in lines.values())


def rebalanced(lines: Mapping[str, ErrorLine], movable: Sequence[Movable]) -> list[RequestMove]:
    """Move requests from engines that have more than was expected to those that have less. Each request moves once at
    most.
    """
    lines, left, moves = dict(lines), sorted(movable, key=lambda one: one.request), list[RequestMove]()
    while True:
        best = min(
            (
                (_change(lines, one, engine), one.request, engine, one)
                for one in left
                if lines[one.engine].distance > 0
                for engine, line in lines.items()
                if line.distance < 0
            ),
            default=None,
            key=lambda option: option[:3],
        )
        if best is None or best[0] >= 0:
            return moves
        _, _, to, one = best
        lines[one.engine] = lines[one.engine].moved(-one.answer_tokens, -1)
        lines[to] = lines[to].moved(one.answer_tokens, 1)
        left.remove(one)
        moves.append(RequestMove(one.request, one.engine, to))


def _change(lines: Mapping[str, ErrorLine], one: Movable, to: str) -> float:
    """Of the sum of distances."""
    origin, target = lines[one.engine], lines[to]
    after = (origin.moved(-one.answer_tokens, -1), target.moved(one.answer_tokens, 1))
    return sum(abs(line.distance) for line in after) - abs(origin.distance) - abs(target.distance)
