"""The file that describes a load: who asks when, for how much, and in how many turns."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from mesh.errors import UserError
from simulation.loads.arrival_processes import LEAST_CV, MOST_CV, Process
from simulation.loads.trace_request import LONGEST_S

MOST_REQUESTS: Final = 10_000_000  # of a load: all are made before it begins
Seconds = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)]
Thinking = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
RateOrPause = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_REQUESTS)]
Range = Annotated[list[Count], msgspec.Meta(min_length=2, max_length=2)]


class ArrivalsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arrivals of an open loop: ``rate`` is requests a second; None: there are phases."""

    rate: Rate | None = None
    process: Process = Process.POISSON
    cv: Annotated[float, msgspec.Meta(ge=LEAST_CV, le=MOST_CV)] = 2.0


class PhaseTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A while with a rate of its own, 0 for a pause; ``to`` makes it a ramp."""

    for_s: Seconds
    rate: RateOrPause
    to: RateOrPause | None = None

    @property
    def last_rate(self) -> float:
        return self.rate if self.to is None else self.to

    @property
    def num_expected(self) -> float:
        """The number of arrivals that are to be expected."""
        return self.for_s * (self.rate + self.last_rate) / 2

    def faster(self, factor: float) -> "PhaseTable":
        """Return the same while with rates that are so many times as high."""
        last = None if self.to is None else factor * self.to
        return msgspec.structs.replace(self, rate=factor * self.rate, to=last)


class ClientsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The clients of a closed loop, each of which thinks for ``think_s`` on average before it asks."""

    count: Count
    think_s: Thinking = 0.0


class TokensTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of prompts and answers: from a file beside this one (or by name), or evenly between two numbers."""

    lengths: str | None = None
    input: Count | Range | None = None
    output: Count | Range | None = None


class ConversationsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``turns`` on average, geometrically distributed up to ``most_turns``; ``think_s`` on average between an answer
    and the next turn.
    """

    turns: Annotated[float, msgspec.Meta(ge=1, le=1000)]
    think_s: Thinking = 0.0
    most_turns: Count = 20


class LoadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file. It ends after so many ``requests`` (of conversations: first turns), or after ``duration_s``."""

    requests: Count | None = None
    duration_s: Seconds | None = None
    arrivals: ArrivalsTable | None = None
    phases: list[PhaseTable] = []
    clients: ClientsTable | None = None
    tokens: TokensTable = TokensTable()
    conversations: ConversationsTable | None = None

    @property
    def num_expected(self) -> float:
        """Arrivals of an open loop that ends by time; 0 of others."""
        if self.phases:
            return sum(phase.num_expected for phase in self.phases)
        rate = None if self.arrivals is None else self.arrivals.rate
        return (rate or 0.0) * (self.duration_s or 0.0)

    @property
    def span_s(self) -> float:
        """How long requests of an open loop are to be expected to come; 0 of a closed one."""
        if self.phases:
            return sum(phase.for_s for phase in self.phases)
        rate = None if self.arrivals is None else self.arrivals.rate
        return self.duration_s or (0.0 if rate is None else (self.requests or 0) / rate)


@dataclass(frozen=True, slots=True)
class LoadDescription:
    """A file that was read; ``path`` is where."""

    path: Path
    table: LoadTable

    @property
    def lengths(self) -> Path | None:
        """Where lengths come from: relative paths are beside the file."""
        name = self.table.tokens.lengths
        if name is None:
            return None
        beside = self.path.parent / name
        return beside if beside.exists() else Path(name)

    @property
    def is_stationary(self) -> bool:
        return not self.table.phases

    def at_rate(self, rate: float) -> "LoadDescription":
        """Return the same with so many requests a second (of conversations: first turns); phases are faster or slower
        by one factor, and ``rate`` is their mean. Raise `UserError` for a closed loop.
        """
        table, arrivals = self.table, self.table.arrivals
        if table.clients is not None:
            problem = "has the clients of a closed loop, which ask when they were answered"
            raise UserError(f"--load: {self.path} {problem}; instead of a rate give --concurrency")
        if table.phases:
            factor = rate / _mean_rate(table.phases)
            found = self._with(phases=[phase.faster(factor) for phase in table.phases])
        else:
            assert arrivals is not None, "who asks has been checked"
            found = self._with(arrivals=msgspec.structs.replace(arrivals, rate=rate))
        for words, is_there in _excesses(found.table).items():
            if is_there:
                raise UserError(f"--load: {self.path}: at {rate:g} requests a second {words}")
        return found

    def with_clients(self, count: int) -> "LoadDescription":
        """Return the same closed loop with so many clients. Raise `UserError` for an open one."""
        clients = self.table.clients
        if clients is None:
            problem = "is an open loop, whose requests do not wait for answers"
            raise UserError(f"--load: {self.path} {problem}; instead of --concurrency give a rate")
        return self._with(clients=msgspec.structs.replace(clients, count=count))

    def with_requests(self, number: int) -> "LoadDescription":
        """Return the same open loop without phases, for so many requests (of conversations: first turns)."""
        return self._with(requests=number, duration_s=None)

    def _with(self, **fields: Any) -> "LoadDescription":
        return replace(self, table=msgspec.structs.replace(self.table, **fields))


def read_description(path: Path) -> LoadDescription:
    """Raise `UserError`, with what would be right."""
    try:
        table = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), LoadTable)
    except FileNotFoundError:
        raise UserError(f"--load: {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--load: {path} cannot be read: {error}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"--load: {path}: {error}") from None
    fault = _fault(table)
    if fault is not None:
        raise UserError(f"--load: {path}: {fault}")
    return LoadDescription(path, table)


def _mean_rate(phases: Sequence[PhaseTable]) -> float:
    return sum(phase.num_expected for phase in phases) / sum(phase.for_s for phase in phases)


def _excesses(table: LoadTable) -> dict[str, bool]:
    """What is more than anybody can wait for."""
    years = table.span_s / LONGEST_S
    return {
        f"about {table.num_expected:.3g} requests would come; ask for {MOST_REQUESTS:,} at most": (
            table.num_expected > MOST_REQUESTS
        ),
        f"requests would come for about {years:.3g} years, and one is the most": years > 1,
    }


def _fault(table: LoadTable) -> str | None:
    """What does not fit together."""
    arrivals, phases = table.arrivals, table.phases
    has_rate, bursts = (
        arrivals is not None and arrivals.rate is not None,
        arrivals is not None and arrivals.process is Process.BURST,
    )
    talks = table.conversations
    turns, most_turns = ("", 0) if talks is None else (f"{talks.turns:g}", talks.most_turns)
    faults = {
        **_excesses(table),
        "who asks? Give [arrivals] or [[phases]] (open loop), or [clients] (closed loop)": (
            (arrivals is not None or bool(phases)) == (table.clients is not None)
        ),
        "phases say when and how long; leave arrivals.rate and duration_s out": (
            bool(phases) and (has_rate or table.duration_s is not None)
        ),
        "phases: all of them are pauses; give one a rate": (
            bool(phases) and not any(phase.rate + phase.last_rate for phase in phases)
        ),
        "arrivals.process: bursts have their own times; leave it out, or the phases": bool(phases) and bursts,
        "arrivals.rate: missing; give requests a second, or [[phases]]": (
            arrivals is not None and not phases and not has_rate
        ),
        "when does it end? Give requests or duration_s, one of them": (
            not phases and (table.requests is None) == (table.duration_s is None)
        ),
        "tokens.lengths: the file says both lengths; leave input and output out, or the file": (
            table.tokens.lengths is not None and not (table.tokens.input is None and table.tokens.output is None)
        ),
        f"conversations.turns: {turns} on average cannot be {most_turns} at most; give a higher most_turns, or fewer": (
            talks is not None and talks.turns > talks.most_turns
        ),
        **{
            f"tokens.{name}: {bounds} is no range; write it like [64, 256]": True
            for name, bounds in (("input", table.tokens.input), ("output", table.tokens.output))
            if isinstance(bounds, list) and bounds[0] > bounds[1]
        },
    }
    return next((words for words, is_there in faults.items() if is_there), None)
