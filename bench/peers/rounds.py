"""Rounds of generation, measured the same way in engines of any interpreter: the standard library alone is imported.

A child process holds one engine (`Answers`) and answers each round that its parent (`Child`) writes to it, one JSON
line for one JSON line. What libraries print goes to standard error.
"""

import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Protocol

TOKEN_IDS = range(100, 20_000)  # ordinary tokens of any vocabulary that is worth measuring
ROOT = Path(__file__).resolve().parents[2]
START_S = 900.0  # vLLM may compile for minutes
ROUND_S = 600.0
END_S = 10.0

Command = tuple[list[str], dict[str, str]]  # words, and what is added to the environment


@dataclass(frozen=True, slots=True)
class Round:
    """Requests that arrive at once and are alike. ``seed`` makes their prompts, of which no two share a prefix, unless
    prompts are ``given``. With ``in_cpu_time``, seconds are the engine's process's own: others take none of them.
    ``grammar``: of all answers, in the words of `mesh.wire.requests.Sampling`; empty: they are free.
    """

    num_requests: int
    prompt_tokens: int
    new_tokens: int
    seed: int
    given: Sequence[list[int]] = ()
    in_cpu_time: bool = False
    grammar: str = ""

    def prompts(self) -> list[list[int]]:
        if self.given:
            return list(self.given)
        stream = random.Random(self.seed)
        return [stream.choices(TOKEN_IDS, k=self.prompt_tokens) for _ in range(self.num_requests)]


@dataclass(frozen=True, slots=True)
class Measured:
    """``ttft_ms``: the mean over the requests, which all arrive at once. ``decode_rate``: tokens/s of all of them
    together while all decode; None if they never do. ``num_steps``: in which all decoded.
    """

    ttft_ms: float
    decode_rate: float | None
    num_steps: int = 0

    def __str__(self) -> str:
        rate = "never all at once" if self.decode_rate is None else f"{self.decode_rate:.1f} tokens/s"
        return f"TTFT {self.ttft_ms:.0f} ms, decode {rate}"


class Generator(Protocol):
    """An engine in this process."""

    def generate(self, prompts: Sequence[list[int]], num_tokens: int, grammar: str = "") -> Iterator[Mapping[str, int]]:
        """Take all prompts, then yield after each step how many tokens each request got in it. Greedy, no early end."""
        ...


def measure(engine: Generator, work: Round, now: Callable[[], float] | None = None) -> Measured:
    """Raise RuntimeError if tokens are missing."""
    now = now or (time.process_time if work.in_cpu_time else time.perf_counter)
    prompts = work.prompts()
    started = now()
    steps = [(now(), tokens) for tokens in engine.generate(prompts, work.new_tokens, work.grammar)]
    return _evaluate(work, started, steps)


def _evaluate(work: Round, started: float, steps: Sequence[tuple[float, Mapping[str, int]]]) -> Measured:
    """The rate counts from the step that gave the last request its first token to the first one that ends a request."""
    got: Counter[str] = Counter()
    first_at: dict[str, float] = {}  # by request
    all_decode: list[tuple[float, int]] = []  # time, tokens of all requests so far
    for at, tokens in steps:
        was_over = bool(got) and max(got.values()) >= work.new_tokens
        got.update(tokens)
        for request, num_tokens in tokens.items():
            if num_tokens:
                first_at.setdefault(request, at)
        if len(got) == work.num_requests and not was_over:
            all_decode.append((at, got.total()))
    if not first_at or got.total() != work.num_requests * work.new_tokens:
        raise RuntimeError(f"{got.total()} tokens came, not {work.new_tokens} for each of {work.num_requests} requests")
    return Measured(1e3 * (fmean(first_at.values()) - started), _rate(all_decode), max(0, len(all_decode) - 1))


def _rate(points: Sequence[tuple[float, int]]) -> float | None:
    if len(points) < 2:
        return None
    (begin, before), (end, after) = points[0], points[-1]
    return (after - before) / (end - begin)


class Answers:
    """The child's end. Make it before anything prints: it keeps standard output for the answers."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def serve(self, engine: Generator) -> None:
        """Say that the engine is ready, then measure rounds until the parent has no more."""
        self._say({"ready": True})
        for line in sys.stdin:
            self._say(asdict(measure(engine, Round(**json.loads(line)))))

    def _say(self, answer: Mapping[str, object]) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()


class ChildError(RuntimeError):
    """An engine did not start, answer or keep its deadline. The message says which."""


class Child:
    """The parent's end: an engine in a process of its own, which has `Answers`."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                bufsize=0,  # nothing that `select` does not see waits in a buffer
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **environment},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def until_ready(self, limit_s: float = START_S) -> None:
        """Raise `ChildError` if it ends instead, or takes longer."""
        self._answer(limit_s)

    def measure(self, work: Round, limit_s: float = ROUND_S) -> Measured:
        """Raise `ChildError` if it ends instead, or takes longer."""
        return Measured(**self.ask(asdict(work), limit_s))

    def ask(self, question: object, limit_s: float = ROUND_S) -> Any:
        """Return the answer to a line of JSON, which is one, too. Raise `ChildError` if there is none in time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        return json.loads(self._answer(limit_s))

    def _answer(self, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise ChildError(f"{self.name} did not answer within {limit_s:g} s")
        if line := self._process.stdout.readline():
            return line
        words = self._log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise ChildError(f"{self.name} ended: {words[-1]}")

    def stop(self) -> None:
        """Let it end; kill it if it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def children(names: Iterable[str], command_of: Callable[[str], Command]) -> Iterator[list[Child]]:
    """All engines that start. One that does not is left out, and said: vLLM may fail to compile here."""
    with ExitStack() as stack:
        logs, found = Path(stack.enter_context(TemporaryDirectory())), list[Child]()
        for name in names:
            print(f"starting {name}", file=sys.stderr)
            try:
                child = Child(name, *command_of(name), logs / name)
                stack.callback(child.stop)
                child.until_ready()
                found.append(child)
            except ChildError as error:
                print(f"without it: {error}", file=sys.stderr)
        yield found
