"""Measures a server: sends the designed load until the terms are known or time is over."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import aiohttp

from mesh.errors import UserError
from mesh.show.progress import ShownProgress
from router.profiling.client import AnswerError, ModelClient
from router.profiling.experiments import LoadExperiment, SeenExperiment
from router.profiling.lag import watched_lag
from router.profiling.load_design import LoadDesign, LoadLimits
from router.profiling.readings import Read, read
from router.profiling.running import run_experiment
from router.profiling.server import ServerSays, ask_server
from router.profiling.terms import Terms, fit_terms

FEWEST_ROUNDS: Final = 2
FIT_EVERY: Final = 8  # experiments
MOST_CONTEXT: Final = 32_768  # tokens of a prompt, where the server does not say how long one may be
MOST_FAILURES: Final = 5
MOST_CONNECTIONS: Final = 2048
KEPT_S: Final = 2.0  # that a connection is used again: servers close them after five seconds or so


@dataclass(frozen=True, slots=True)
class MeasuredServer:
    """``terms`` of the server, from ``reads``; what it ``says`` of itself; how the measuring went."""

    says: ServerSays
    terms: Terms
    reads: Sequence[Read]
    seconds: float
    num_requests: int
    num_rounds: int
    num_left_out: int
    remarks: Sequence[str] = ()


@dataclass(slots=True)
class _Course:
    """What is known so far."""

    reads: list[Read] = field(default_factory=list)
    num_requests: int = 0
    terms: Terms | None = None
    failures: list[str] = field(default_factory=list)

    def take(self, seen: SeenExperiment) -> None:
        self.reads.append(read(seen))
        self.num_requests += len(seen.answers) + len(seen.joined)

    def words(self) -> str:
        if self.terms is None or not self.terms.unsure:
            return "looking around"
        name, doubt = max(self.terms.unsure.items(), key=lambda item: item[1])
        return f"least sure: {name}" + (f", to {doubt:.0%}" if doubt < 10 else "")


async def measure_server(
    url: str,
    model: str | None,
    headers: Mapping[str, str],
    seconds: float,
    shown: ShownProgress,
    *,
    most_together: int = 256,
    seed: int = 0,
) -> MeasuredServer:
    """Raise `UserError` if there is no such server, or its answers tell too little."""
    connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=KEPT_S)
    async with aiohttp.ClientSession(connector=connector, headers=dict(headers)) as session, watched_lag() as lag:
        says = await ask_server(session, url, model)
        client = ModelClient(session, url, says.model, Random(seed))
        await client.learn_manners()
        limits = LoadLimits(seconds, says.max_context or MOST_CONTEXT, most_together)
        measured = await _measure(client, says, LoadDesign(limits), shown)
        return replace(measured, remarks=[*measured.remarks, *lag.remarks()])


async def _try(client: ModelClient, course: _Course, experiment: LoadExperiment) -> SeenExperiment | None:
    """Carry out an experiment. None: a request of it failed, as one that is too long for the server."""
    try:
        return await run_experiment(client, experiment)
    except AnswerError as error:
        course.failures.append(str(error))
        return None


async def _measure(client: ModelClient, says: ServerSays, design: LoadDesign, shown: ShownProgress) -> MeasuredServer:
    course, started, limit_s = _Course(), time.monotonic(), design.limits.seconds
    asked = design.limits.most_together
    while not _is_over(course, design, started):
        for experiment in design.experiments():
            seen = await _try(client, course, experiment)
            if seen is None:
                design.failed(experiment)
            else:
                design.saw(seen)
                course.take(seen)
            passed_s = time.monotonic() - started
            shown.at(min(passed_s, limit_s), course.words())
            if len(course.reads) % FIT_EVERY == 0:
                course.terms = fit_terms(course.reads) or course.terms
            if passed_s >= limit_s or len(course.failures) >= MOST_FAILURES:
                break
        course.terms = fit_terms(course.reads)
    if course.terms is None:
        why = f": {course.failures[0]}" if course.failures else "; give it more --minutes"
        raise UserError(f"{client.url}: its answers tell too little to fit costs to{why}")
    remarks = (
        [f"{len(course.failures)} experiments failed; the first one: {course.failures[0]}"] if course.failures else []
    )
    if (most := design.limits.most_together) < asked:  # more at a time failed
        says = replace(says, max_running=says.max_running or most)
    return MeasuredServer(
        says,
        course.terms,
        course.reads,
        time.monotonic() - started,
        course.num_requests,
        design.num_rounds,
        len(design.left_out),
        remarks,
    )


def _is_over(course: _Course, design: LoadDesign, started: float) -> bool:
    if time.monotonic() - started >= design.limits.seconds or len(course.failures) >= MOST_FAILURES:
        return True
    return design.num_rounds >= FEWEST_ROUNDS and course.terms is not None and course.terms.are_known
