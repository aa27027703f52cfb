"""Services that share two engines, live: disciplines beside each other, and placements that change while requests run.

    python -m bench.papers.seallm.live [--setting two|three] [--seeds 3] [--only NAME ...] [--scale 1] [--out DIR]

Real processes: gateway, engines, plans and migrations. Engines take the time of an A10 with Llama-2-7B instead of
computing, which needs little of the machine. Of the three phases the first and last are full of long requests, the
second of short ones. With `three` services two at most are on an engine: the one that is busy can have both engines,
and it is another one in the second phase.

First the requests of a seed are served one by one: that gives each its undisturbed latency and (greedy) tokens. Then
each contender gets the same requests at the same times on a mesh of its own. With `two`: both services on both engines,
by discipline (db, fcfs, round_robin, slo), and an engine each. With `three`, all with db: a plan made for the first
phase is kept, or a placement daemon changes it when it wants to. Normalised latency is latency over the mean
undisturbed one of the service; a promise is 5 times the request's own. Run it alone: it says what others used of the
machine.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, geometric_mean

from rich.progress import Progress

from bench.harness.arguments import add_out, add_seeds, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import progress_bar
from bench.harness.tables import print_table
from bench.live.contention import Watch
from bench.live.http_load import Answer, Sending
from bench.live.lengths import TOKEN_IDS, Bounds
from bench.live.ports import free_port
from bench.live.serving import OK
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import check_served, total, turned, warm_mesh
from bench.simulated import percentile

PROMISE = 5.0  # times what the request takes undisturbed
REFERENCE = "db"
ENGINE = (
    'backend = "simulated"\nprofile = "a10-llama2-7b-tp1"\nchunk_tokens = 2048\nmax_running = 32\nmax_waiting = 100000'
)
DAEMON = "[placement]\ninterval_s = 8\nshortest_s = 6\nlongest_s = 12\nimprove_s = 1\n"  # phases are short


@dataclass(frozen=True, slots=True)
class Service:
    """``shares`` of its requests arrive in each phase; phases are equally long. ``slo_ms``: TTFT and TPOT, by which the
    placement daemon judges; `slo` schedules by them, other disciplines do not look.
    """

    prompt: Bounds
    answer: Bounds
    num_requests: int
    shares: tuple[float, float, float]
    slo_ms: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Contender:
    """``placement``: the services that each engine holds; at first, if there is a daemon, which changes it."""

    name: str
    scheduling: str
    placement: Mapping[str, tuple[str, ...]]
    has_daemon: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """``load``: seconds that requests take alone, over those that two engines have for all of them; batches serve more
    than one request at a time.
    """

    services: Mapping[str, Service]
    load: float
    contenders: tuple[Contender, ...]


OFTEN_SELDOM, SELDOM_OFTEN, STEADY = (0.45, 0.1, 0.45), (0.15, 0.7, 0.15), (0.33, 0.34, 0.33)
NUM_PHASES = len(OFTEN_SELDOM)
BOTH = ("long", "short")
TWO = Setting(
    {
        "long": Service(Bounds(256, 768, 2048, 0.5), Bounds(16, 64, 192, 0.6), 45, OFTEN_SELDOM, (2000, 150)),
        "short": Service(Bounds(16, 64, 256, 0.5), Bounds(4, 8, 48, 0.6), 225, SELDOM_OFTEN, (500, 150)),
    },
    3.5,
    (
        *(Contender(name, name, {"first": BOTH, "second": BOTH}) for name in ("db", "fcfs", "round_robin", "slo")),
        Contender("an engine each", "fcfs", {"first": ("long",), "second": ("short",)}),
    ),
)
DOCUMENTS = Bounds(1024, 1536, 2048, 0.2), Bounds(4, 8, 16, 0.4)
FOR_LEFT = {"first": ("left", "chat"), "second": ("left", "right")}
THREE = Setting(  # one more than fit: two services at most on an engine (SeaLLM, section 6.1), and each needs a place
    {
        "left": Service(*DOCUMENTS, 220, OFTEN_SELDOM, (2000, 150)),
        "right": Service(*DOCUMENTS, 200, SELDOM_OFTEN, (2000, 150)),
        "chat": Service(Bounds(64, 128, 512, 0.5), Bounds(16, 32, 64, 0.5), 60, STEADY, (1000, 150)),
    },
    1.35,
    (Contender("db", "db", FOR_LEFT), Contender("daemon", "db", FOR_LEFT, has_daemon=True)),
)
SETTINGS = {"two": TWO, "three": THREE}


# --- what is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """``place``: the time of its arrival, as a fraction of the whole time."""

    service: str
    place: float
    prompt: list[int]
    num_output: int


def draw(setting: Setting, seed: int, scale: float = 1.0) -> list[Request]:
    """Draw ``scale`` times as many as the setting says, in order of arrival: Poisson within a phase."""
    requests = (
        _request(service, name, phase, Random(f"{seed}/{name}/{phase}/{number}"))
        for name, service in setting.services.items()
        for phase, share in enumerate(service.shares)
        for number in range(max(1, round(scale * service.num_requests * share)))
    )
    return sorted(requests, key=lambda request: request.place)


def _request(service: Service, name: str, phase: int, random: Random) -> Request:
    place = (phase + random.random()) / NUM_PHASES
    prompt = random.choices(TOKEN_IDS, k=service.prompt.draw(random))
    return Request(name, place, prompt, service.answer.draw(random))


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alone:
    """Seconds and texts of requests that nothing else was served beside."""

    latencies_s: Sequence[float]
    texts: Sequence[str]

    def duration_s(self, load: float) -> float:
        """Return the time of arrivals in which two engines have ``load`` times what they could do one by one."""
        return sum(self.latencies_s) / (2 * load)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request. ``normalised``: its latency over the mean undisturbed one of its service."""

    service: str
    normalised: float
    is_served: bool
    is_same: bool  # the tokens, as undisturbed
    is_kept: bool  # the promise


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender made of the requests of a seed. ``others`` used so many cores meanwhile."""

    contender: str
    seed: int
    outcomes: Sequence[Outcome]
    num_plans: int  # that the daemon carried out
    num_migrated: int
    others: float


def topology_text(setting: Setting, contender: Contender) -> str:
    lines: list[str] = []
    for name, service in setting.services.items():
        lines += [f'[services.{name}]\nmodel = "{DEFAULT_MODEL}"']
        lines += ["ttft_ms = {}\ntpot_ms = {}".format(*service.slo_ms)]
    for engine, services in contender.placement.items():
        lines += [
            f'[engines.{engine}]\nservices = {json.dumps(services)}\nscheduling = "{contender.scheduling}"',
            ENGINE,
        ]
    lines += [f'[gateways.gateway]\nport = {free_port()}\nmax_waiting = 100000\n[policy]\nname = "least_loaded"']
    return "\n".join([*lines, DAEMON if contender.has_daemon else ""])


def serve_alone(setting: Setting, requests: Sequence[Request], on_answer: Callable[[], None]) -> Alone:
    """Serve the requests one by one. Raise `UserError` if one is not served."""
    with warm_mesh(topology_text(setting, setting.contenders[0])) as mesh:
        answers = mesh.answers(_sendings(requests, 0.0), on_answer, one_by_one=True, keeps_text=True)
    check_served(answers)
    return Alone([answer.last_s - answer.sent_s for answer in answers], [answer.text for answer in answers])


def _sendings(requests: Sequence[Request], duration_s: float) -> list[Sending]:
    return [Sending(one.place * duration_s, one.prompt, one.num_output, model=one.service) for one in requests]


def serve(
    setting: Setting,
    contender: Contender,
    seed: int,
    requests: Sequence[Request],
    alone: Alone,
    on_answer: Callable[[], None],
) -> Run:
    """Serve on a mesh of its own. Raise `UserError` if it does not start."""
    sendings = _sendings(requests, alone.duration_s(setting.load))
    with warm_mesh(topology_text(setting, contender)) as mesh:
        with Watch(mesh.pids()) as watch:
            answers = mesh.answers(sendings, on_answer, keeps_text=True)
        num_plans = int(mesh.status()["placement"]["changes"]) if contender.has_daemon else 0
        num_migrated = total(mesh, "migrations")
    outcomes = outcomes_of(requests, answers, alone)
    return Run(contender.name, seed, outcomes, num_plans, num_migrated, watch.contention.others)


def outcomes_of(requests: Sequence[Request], answers: Sequence[Answer], alone: Alone) -> list[Outcome]:
    latencies_s = list(zip(requests, alone.latencies_s, strict=True))
    means_s = {
        name: fmean(taken_s for one, taken_s in latencies_s if one.service == name)
        for name in {one.service for one in requests}
    }
    return [
        _outcome(request.service, answer, taken_s, text, means_s[request.service])
        for (request, taken_s), answer, text in zip(latencies_s, answers, alone.texts, strict=True)
    ]


def _outcome(service: str, answer: Answer, alone_s: float, text: str, mean_s: float) -> Outcome:
    latency_s, is_served = answer.last_s - answer.sent_s, answer.status == OK
    is_same, is_kept = answer.text == text, latency_s <= PROMISE * alone_s
    return Outcome(service, latency_s / mean_s, is_served, is_served and is_same, is_served and is_kept)


def run_all(options: argparse.Namespace, progress: Progress) -> list[Run]:
    """Serve all seeds with all contenders, each time another one first, so that what drifts falls on all."""
    setting = SETTINGS[options.setting]
    chosen = [one for one in setting.contenders if one.name in options.only]
    requests = {seed: draw(setting, seed, options.scale) for seed in range(options.seeds)}
    task = progress.add_task("", total=(1 + len(chosen)) * sum(map(len, requests.values())))
    runs = []
    for seed, asked in requests.items():
        progress.update(task, description=f"seed {seed}: undisturbed")
        alone = serve_alone(setting, asked, lambda: progress.advance(task))
        for one in turned(chosen, seed):
            progress.update(task, description=f"seed {seed}: {one.name}")
            runs.append(serve(setting, one, seed, asked, alone, lambda: progress.advance(task)))
    names = [one.name for one in chosen]
    return sorted(runs, key=lambda run: names.index(run.contender))


# --- what is told -----------------------------------------------------------------------------------------------------


def report(runs: Sequence[Run]) -> None:
    services = sorted({one.service for one in runs[0].outcomes})
    columns = "mean", "P99", "kept, %", ", ".join(services), "mean, times db's", "lost", "other", "plans", "moved"
    rows = (_cells(runs, contender, services) for contender in dict.fromkeys(run.contender for run in runs))
    print_table("normalised latency: all requests of all seeds", ("",), columns, rows, width=140)
    print(f"others used {fmean(run.others for run in runs):.2f} cores meanwhile")


def _cells(runs: Sequence[Run], contender: str, services: Sequence[str]) -> Iterator[str]:
    own = [run for run in runs if run.contender == contender]
    outcomes = [outcome for run in own for outcome in run.outcomes]
    yield from (contender, f"{mean(outcomes):.2f}")
    yield f"{percentile([one.normalised for one in outcomes if one.is_served], 99):.1f}"
    yield f"{100 * fmean(one.is_kept for one in outcomes):.0f}"
    yield ", ".join(f"{mean(one for one in outcomes if one.service == name):.2f}" for name in services)
    yield ratios(own, [run for run in runs if run.contender == REFERENCE])
    yield str(sum(not one.is_served for one in outcomes))
    yield str(sum(one.is_served and not one.is_same for one in outcomes))
    yield from (str(sum(run.num_plans for run in own)), str(sum(run.num_migrated for run in own)))


def mean(outcomes: Iterable[Outcome]) -> float:
    """Return the mean normalised latency of the requests that were served."""
    return fmean(one.normalised for one in outcomes if one.is_served)


def ratios(own: Sequence[Run], reference: Sequence[Run]) -> str:
    """Compare mean latencies of the seeds that both served: geometric mean, least and most."""
    theirs = {run.seed: mean(run.outcomes) for run in reference}
    found = [mean(run.outcomes) / theirs[run.seed] for run in own if run.seed in theirs]
    return f"{geometric_mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else ""


def main() -> None:
    options = _arguments()
    with progress_bar() as progress, errors_in_a_line():
        runs = run_all(options, progress)
    report(runs)
    write_json(options.out / "sharing_live.json", runs)


def _arguments() -> argparse.Namespace:
    parser = script_parser("bench.papers.seallm.live", __doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="two", help="services that share (default: two)")
    add_seeds(parser, 3)
    names = list(dict.fromkeys(one.name for setting in SETTINGS.values() for one in setting.contenders))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="; ".join(names))
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="times as many requests (default: 1)")
    add_out(parser, "sharing_live")
    return parser.parse_args()


if __name__ == "__main__":
    main()
