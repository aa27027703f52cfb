"""What became of a scenario's requests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from bench.harm.clients import Client
from bench.harm.harm import Row

GAP_LIMIT_S = 3.0  # the target: the worst pause between two tokens of a stream
MAX_PROBLEMS = 8


@dataclass(slots=True)
class Tally:
    """``wrong``: pieces of answers that are not what a healthy mesh said: duplicated, missing or other ones."""

    requests: int = 0
    failed: int = 0
    refused: int = 0  # before they were accepted: told to come back later
    cancelled: int = 0  # their clients went away
    lost_with_gateway: int = 0
    wrong: int = 0
    worst_gap_s: float | None = None
    problems: list[str] = field(default_factory=list)

    def take(self, client: Client, expected: Sequence[str], *, is_excused: bool = False, is_timed: bool = True) -> None:
        """``is_excused``: its own gateway was killed. Not ``is_timed``: a client that does not read has no gaps."""
        self.requests += 1
        if client.has_left:
            self.cancelled += 1
        elif client.was_refused:
            self.refused += 1
        elif not client.is_whole and is_excused:
            self.lost_with_gateway += 1
        elif not client.is_whole:
            self.failed += 1
            self.complain(
                f"{client.name}: status {client.status}, {len(client.pieces)} pieces: {client.problem or 'late'}"
            )
        if wrong := num_wrong(client.pieces, expected, is_whole=client.is_whole):
            self.wrong += wrong
            self.complain(f"{client.name}: {wrong} wrong pieces of {len(client.pieces)}")
        if is_timed and not is_excused:
            for _, gap_s in client.gaps():
                self.worst_gap_s = max(gap_s, self.worst_gap_s or 0.0)

    def complain(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def num_wrong(got: Sequence[str], expected: Sequence[str], *, is_whole: bool) -> int:
    """Positions that differ; of an answer that broke off, only what came counts."""
    pairs = zip_longest(got, expected) if is_whole or len(got) > len(expected) else zip(got, expected, strict=False)
    return sum(one != other for one, other in pairs)


def recovery_s(
    fault_at: float, clients: Iterable[Client], probes: Iterable[Client], ports: Collection[int]
) -> float | None:
    """From the fault until every stream that was open went on, and each gateway answered a request sent after it.

    None: not all of them did.
    """
    moments = [fault_at]
    for client in clients:
        was_open = client.arrivals and client.arrivals[0][0] <= fault_at and (client.ended_at or fault_at) >= fault_at
        if was_open and not client.has_left:
            moments.append(next((at for at, _ in client.arrivals if at > fault_at), client.ended_at or fault_at))
    answered: dict[int, float] = {}
    for probe in probes:
        if probe.is_whole and probe.sent_at >= fault_at and probe.ended_at is not None:
            answered[probe.port] = min(probe.ended_at, answered.get(probe.port, probe.ended_at))
    return max(*moments, *answered.values()) - fault_at if answered.keys() >= set(ports) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRow(Row):
    """``ready_s``: from the fault until every process was ready again. ``notes``: counts of what a scenario did."""

    tally: Tally
    gap_limit_s: float = GAP_LIMIT_S
    recovery_s: float | None = None
    ready_s: float | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        gap_s = self.tally.worst_gap_s or 0.0
        late = [f"a stream paused for {gap_s:.2f} s"] if gap_s >= self.gap_limit_s else []
        return [*self.tally.problems, *late]

    @property
    def remarks(self) -> list[str]:
        return [", ".join(f"{name} {value}" for name, value in self.notes.items())] if self.notes else []

    def cells(self) -> dict[str, str]:
        tally = self.tally
        lost = f" + {tally.lost_with_gateway}" if tally.lost_with_gateway else ""
        limit = "" if self.gap_limit_s == GAP_LIMIT_S else f" (< {self.gap_limit_s:.1f})"
        return {
            "scenario": self.name,
            "requests": str(tally.requests),
            "failed": f"{tally.failed}{lost}",
            "wrong": str(tally.wrong),
            "refused": str(tally.refused),
            "left": str(tally.cancelled),
            "gap s": _seconds(tally.worst_gap_s) + limit,
            "recovery s": _seconds(self.recovery_s),
            "ready s": _seconds(self.ready_s),
        }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
