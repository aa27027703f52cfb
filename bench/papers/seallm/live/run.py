"""One contender serves the requests of a seed on a mesh of its own; and what each of them takes undisturbed."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.live.contention import Watch
from bench.live.http_load import Answer, Sending
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.serving import OK
from bench.papers.live import check_served, total, warm_up
from bench.papers.seallm.live.setting import NUM_PHASES, Contender, Request, Setting, write_topologies

PROMISE = 5.0  # times what the request takes undisturbed


class Alone(msgspec.Struct, frozen=True):
    """Seconds and texts of requests that nothing else was served beside."""

    latencies_s: Sequence[float]
    texts: Sequence[str]

    def duration_s(self, load: float) -> float:
        """Return the time of arrivals in which two engines have ``load`` times what they could do one by one."""
        return sum(self.latencies_s) / (2 * load)


class Outcome(msgspec.Struct, frozen=True):
    """What came of one request. ``normalised``: its latency over the mean undisturbed one of its service."""

    service: str
    phase: int
    normalised: float
    is_served: bool
    is_same: bool  # the tokens, as undisturbed
    is_kept: bool  # the promise


class Run(msgspec.Struct, frozen=True):
    """What one contender made of the requests of a seed. ``others`` used so many cores meanwhile."""

    contender: str
    seed: int
    outcomes: Sequence[Outcome]
    num_plans: int  # that were carried out
    num_migrated: int
    others: float


@contextmanager
def mesh_of(setting: Setting, contender: Contender) -> Iterator[tuple[LiveMesh, Mapping[int, Path]]]:
    """Start a warm mesh; with it come the topologies that it changes to, by phase."""
    with TemporaryDirectory() as folder:
        path, plans = write_topologies(Path(folder), setting, contender)
        with live_mesh(path) as mesh:
            warm_up(mesh)
            yield mesh, plans


def serve_alone(setting: Setting, requests: Sequence[Request], on_answer: Callable[[], None]) -> Alone:
    """Serve the requests one by one. Raise `UserError` if one is not served."""
    with mesh_of(setting, setting.contenders[0]) as (mesh, _):
        answers = mesh.answers(_sendings(requests, 0.0), on_answer, one_by_one=True, keeps_text=True)
    check_served(answers)
    return Alone([answer.last_s - answer.sent_s for answer in answers], [answer.text for answer in answers])


def serve(
    setting: Setting,
    contender: Contender,
    seed: int,
    requests: Sequence[Request],
    alone: Alone,
    on_answer: Callable[[], None],
) -> Run:
    """Serve on a mesh of its own. Raise `UserError` if it does not start, or a plan is not carried out."""
    duration_s = alone.duration_s(setting.load)
    with mesh_of(setting, contender) as (mesh, plans), ThreadPoolExecutor(1) as beside:
        changing = beside.submit(_change, mesh, plans, time.perf_counter(), duration_s)
        with Watch(mesh.pids()) as watch:
            answers = mesh.answers(_sendings(requests, duration_s), on_answer, keeps_text=True)
        changing.result()
        num_plans = int(mesh.status()["placement"]["changes"]) if contender.has_daemon else len(plans)
        num_migrated = total(mesh, "migrations")
    outcomes = outcomes_of(requests, answers, alone)
    return Run(contender.name, seed, outcomes, num_plans, num_migrated, watch.contention.others)


def _change(mesh: LiveMesh, plans: Mapping[int, Path], began_at: float, duration_s: float) -> None:
    """Carry out each plan when its phase begins."""
    for phase, plan in plans.items():
        time.sleep(max(0.0, began_at + duration_s * phase / NUM_PHASES - time.perf_counter()))
        mesh.apply(plan)


def _sendings(requests: Sequence[Request], duration_s: float) -> list[Sending]:
    return [Sending(one.place * duration_s, one.prompt, one.num_output, model=one.service) for one in requests]


def outcomes_of(requests: Sequence[Request], answers: Sequence[Answer], alone: Alone) -> list[Outcome]:
    latencies_s = list(zip(requests, alone.latencies_s, strict=True))
    means_s = {
        name: statistics.fmean(taken_s for one, taken_s in latencies_s if one.service == name)
        for name in {one.service for one in requests}
    }
    return [
        _outcome(request, answer, taken_s, text, means_s[request.service])
        for (request, taken_s), answer, text in zip(latencies_s, answers, alone.texts, strict=True)
    ]


def _outcome(request: Request, answer: Answer, alone_s: float, text: str, mean_s: float) -> Outcome:
    latency_s, is_served = answer.last_s - answer.sent_s, answer.status == OK
    is_same, is_kept = answer.text == text, latency_s <= PROMISE * alone_s
    return Outcome(
        request.service, request.phase, latency_s / mean_s, is_served, is_served and is_same, is_served and is_kept
    )
