"""Checks what the page asks of a simulation, writes it as a command, and reads the answer. Nothing here starts one."""

import re
import signal
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from mesh.suggestions import suggestion
from mesh.topology.schema import Topology
from router.api.errors import bad_parameter

MAX_POLICIES: Final = 8
MAX_DEPLOYMENTS: Final = 6
MAX_RUNS: Final = 12
MAX_ENGINES: Final = 64  # of one pool
MAX_TEXT: Final = 200  # characters of one choice
MAX_NOTES: Final = 20
UNCHANGED: Final = "unchanged"

_POLICY: Final = re.compile(r"([a-z][a-z0-9_-]*)(:[a-z_]+=[A-Za-z0-9_.+-]+)*")
_ENGINES: Final = re.compile(r"([A-Za-z0-9_.-]+)=([0-9]{1,4})")
_PROGRESS: Final = re.compile(r"simulating [^%]*: (\d{1,3})%(?:, (.*) left)?")


@dataclass(frozen=True, slots=True)
class PlayedTopology:
    """What may be changed. ``pools``: engines by table of the topology; ``policy``: of its file."""

    topology: Path
    pools: Mapping[str, int]
    policy: str


def played_topology(topology: Topology) -> PlayedTopology:
    pools = Counter(engine.pool or engine.id for engine in topology.engines)
    return PlayedTopology(topology.path, pools, topology.policy.name)


@dataclass(frozen=True, slots=True)
class WhatIfQuestion:
    """Which policies are to be tried with which numbers of engines, as ``mesh simulate`` reads them."""

    policies: tuple[str, ...]
    engines: tuple[str, ...]

    @classmethod
    def of(
        cls, policies: Sequence[str], engines: Sequence[str], known: Collection[str], pools: Collection[str]
    ) -> "WhatIfQuestion":
        """Raise `ApiError` (400) for anything that cannot be simulated. ``known``: names of policies."""
        for given, name, most in ((policies, "policy", MAX_POLICIES), (engines, "engines", MAX_DEPLOYMENTS)):
            if len(given) > most:
                raise bad_parameter(name, f"must be given {most} times at most, not {len(given)}")
        for policy in policies:
            _check_policy(policy, known)
        for counts in engines:
            _check_engines(counts, pools)
        question = cls(tuple(dict.fromkeys(policies)), tuple(dict.fromkeys(engines)))
        num_runs = max(1, len(question.policies)) * max(1, len(question.engines))
        if num_runs > MAX_RUNS:
            raise bad_parameter("policy", f"these are {num_runs} simulations with all engines; ask for {MAX_RUNS}")
        return question

    def command(self, topology: Path, recording: Path) -> list[str]:
        """The arguments of ``mesh``."""
        return [
            "simulate",
            str(topology),
            f"--trace={recording}",
            *([f"--compare={','.join(self.policies)}"] if self.policies else []),
            *(f"--engines={counts}" for counts in self.engines),
            "--jobs=1",
            "--json",
            "--progress=0.5",
        ]


def _check_policy(text: str, known: Collection[str]) -> None:
    found = _POLICY.fullmatch(text[: MAX_TEXT + 1])
    if found is None or len(text) > MAX_TEXT:
        raise bad_parameter("policy", f"{text[:64]!r} is no policy; write it like tropical or tropical:watermark=0.8")
    if found[1] not in known:
        raise bad_parameter("policy", f"there is no policy {found[1][:64]!r}; {suggestion(found[1], known)}")


def _check_engines(text: str, pools: Collection[str]) -> None:
    if text == UNCHANGED:
        return
    if len(text) > MAX_TEXT:
        raise bad_parameter("engines", f"has {len(text)} characters; use {MAX_TEXT} at most")
    for part in text.split(","):
        found = _ENGINES.fullmatch(part)
        if found is None or not 0 < int(found[2]) <= MAX_ENGINES:
            words = f"write them like prefill=2,decode=3, each up to {MAX_ENGINES}"
            raise bad_parameter("engines", f"{part[:64]!r} is no number of engines; {words}")
        if found[1] not in pools:
            raise bad_parameter("engines", f"there are no engines {found[1][:64]!r}; {suggestion(found[1], pools)}")


class WhatIfProgress(msgspec.Struct, frozen=True):
    """How far a simulation is. ``left``: the time that it still takes, in words."""

    part: float
    left: str = ""


def progress_of(line: str) -> WhatIfProgress | None:
    """Read what ``mesh simulate --progress`` writes. None: the line says something else."""
    found = _PROGRESS.fullmatch(line)
    return None if found is None else WhatIfProgress(min(1.0, int(found[1]) / 100), found[2] or "")


class Failure(msgspec.Struct, frozen=True):
    """Why there is no result, in one line or a few."""

    message: str


class Result(msgspec.Struct, frozen=True):
    """What the command wrote, and what it remarked. See `simulation.reports.comparison`."""

    comparison: msgspec.Raw
    notes: list[str]


def read_answer(code: int, written: bytes, said: Sequence[str], folder: Path) -> Result | Failure:
    """What a command came to that ended with ``code``. ``said``: lines of its standard error but progress."""
    notes = [line.replace(f"{folder}/", "")[:1000] for line in said]
    if code < 0:
        return Failure(_killed(-code))
    if code:
        return Failure("\n".join(notes) or f"The simulation ended with code {code} and said nothing")
    try:
        msgspec.json.decode(written)
    except msgspec.DecodeError:
        return Failure("The simulation ended without a result")
    return Result(msgspec.Raw(written.strip()), notes)


def _killed(number: int) -> str:
    if number == signal.SIGXCPU:
        return "The simulation took more time than it may; choose a shorter recording, or fewer alternatives"
    return f"The simulation was ended by signal {number}"


def event(name: str, data: msgspec.Struct) -> bytes:
    """Write one server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
