"""A run from its first question to its result. Ctrl-C ends it early, with the figures of what was measured."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.load.asked import Asked
from bench.load.generator.crew import Crew, drive
from bench.load.generator.progress import live
from bench.load.results.outcome import Outcome
from bench.load.results.result import Result, make_result
from mesh.errors import CommandError


@dataclass(frozen=True, slots=True)
class Ended:
    """``was_interrupted``: by Ctrl-C."""

    result: Result
    was_interrupted: bool


async def run(
    asked: Asked, label: str, *, num_warmups: int, skip_s: float | None, rate: float | None, is_shown: bool
) -> Ended:
    """``skip_s``: see `make_result`. Raise `CommandError` if the server answers no request of the warm-up."""
    stop = asyncio.Event()
    with _interrupts(stop):
        if num_warmups:
            _check_warm_up((await drive(asked.warm_up(num_warmups), stop)).outcomes)
        crew = Crew([]) if stop.is_set() else await _measured(asked, stop, is_shown=is_shown)
    return Ended(make_result(asked, crew, label, skip_s, rate, datetime.now(UTC)), stop.is_set())


async def _measured(asked: Asked, stop: asyncio.Event, *, is_shown: bool) -> Crew:
    plan = asked.plan
    total = None if plan.is_closed and plan.pace.duration_s is not None else plan.num_requests
    with live(asked.promises, total, plan.span_s, is_shown=is_shown) as heard:
        return await drive(asked.assignments(), stop, heard)


def _check_warm_up(outcomes: Sequence[Outcome]) -> None:
    if outcomes and not any(outcome.is_finished for outcome in outcomes):
        raise CommandError(f"no request of the warm-up was answered: {outcomes[0].reason}")


@contextmanager
def _interrupts(stop: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C sets ``stop``; a second one is as usual."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
