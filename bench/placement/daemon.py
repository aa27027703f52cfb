"""A plan that stays beside the placement daemon, which changes it while requests run: real processes.

    python -m bench.placement.daemon [--seeds 2] [--scale 1.2] [--out DIR]

Gateway, engines, plans and migrations are real; engines take the time of an A10 with Llama-2-7B instead of computing,
which needs little of the machine. Two services at most fit on an engine (SeaLLM, section 6.1), and there are three: the
one that is busy can have both engines, and it is another one in the second of three phases.

First the requests of a seed are served one by one, which gives each its undisturbed latency and (greedy) tokens. Then
they come at the same times to a mesh whose plan was made for the first phase, and to one with a daemon. Normalised
latency is latency over the mean undisturbed one of the service; a promise is 5 times the request's own. Run it alone:
it says what others used of the machine.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from bench.harness.arguments import DEFAULT_MODEL, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import turned
from bench.harness.machine import watched
from bench.harness.tables import print_table
from bench.live.mesh import warm_mesh
from bench.live.ports import free_port
from bench.live.sending import Bounds
from bench.load.results.outcome import Outcome
from bench.simulated import percentile
from mesh.errors import UserError
from mesh.show.progress import working
from simulation.loads.trace_request import TraceRequest

PROMISE = 5.0  # times what the request takes undisturbed
LOAD = 1.35  # seconds that requests take alone, over those that two engines have for all of them; batches serve several
STAYS, DAEMON = "plan for the first phase kept", "daemon"
PLACED = {"first": ("left", "chat"), "second": ("left", "right")}  # services by engine, at first
ENGINE = """
[engines.{engine}]
services = {services}
scheduling = "db"
backend = "simulated"
profile = "a10-llama2-7b-tp1"
chunk_tokens = 2048
max_running = 32
max_waiting = 100000
"""
PLACEMENT = "[placement]\ninterval_s = 8\nshortest_s = 6\nlongest_s = 12\nimprove_s = 1\n"  # phases are short


@dataclass(frozen=True, slots=True)
class Service:
    """``shares`` of its requests arrive in each phase; phases are equally long. The daemon judges by ``ttft_ms``."""

    prompt: Bounds
    answer: Bounds
    num_requests: int
    shares: tuple[float, float, float]
    ttft_ms: int = 2000


DOCUMENTS = Bounds(1024, 1536, 2048, 0.2), Bounds(4, 8, 16, 0.4)
SERVICES = {
    "left": Service(*DOCUMENTS, 220, (0.45, 0.1, 0.45)),
    "right": Service(*DOCUMENTS, 200, (0.15, 0.7, 0.15)),
    "chat": Service(Bounds(64, 128, 512, 0.5), Bounds(16, 32, 64, 0.5), 60, (0.33, 0.34, 0.33), ttft_ms=1000),
}
NUM_PHASES = 3


def draw(seed: int, scale: float = 1.0) -> list[TraceRequest]:
    """Draw ``scale`` times as many as services say, Poisson within a phase. All phases together are a second."""
    requests = (
        _request(name, service, phase, Random(f"{seed}/{name}/{phase}/{number}"))
        for name, service in SERVICES.items()
        for phase, share in enumerate(service.shares)
        for number in range(max(1, round(scale * service.num_requests * share)))
    )
    return sorted(requests, key=lambda request: request.at_s)


def _request(name: str, service: Service, phase: int, random: Random) -> TraceRequest:
    at_s = (phase + random.random()) / NUM_PHASES
    return TraceRequest(at_s, service.prompt.draw(random), service.answer.draw(random), service=name)


def topology_text(contender: str) -> str:
    services = (
        f'[services.{name}]\nmodel = "{DEFAULT_MODEL}"\nttft_ms = {service.ttft_ms}\ntpot_ms = 150\n'
        for name, service in SERVICES.items()
    )
    engines = (ENGINE.format(engine=engine, services=json.dumps(services)) for engine, services in PLACED.items())
    gateway = f'[gateways.gateway]\nport = {free_port()}\nmax_waiting = 100000\n[policy]\nname = "least_loaded"\n'
    return "".join([*services, *engines, gateway, PLACEMENT if contender == DAEMON else ""])


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alone:
    """Seconds and texts of requests that nothing else was served beside."""

    latencies_s: Sequence[float]
    texts: Sequence[str | None]

    @property
    def duration_s(self) -> float:
        """The time of arrivals in which two engines have `LOAD` times what they could do one by one."""
        return sum(self.latencies_s) / (2 * LOAD)

    def means_s(self, requests: Sequence[TraceRequest]) -> Mapping[str | None, float]:
        """By service."""
        both = list(zip(requests, self.latencies_s, strict=True))
        names = {one.service for one in requests}
        return {name: fmean(took_s for one, took_s in both if one.service == name) for name in names}


@dataclass(frozen=True, slots=True)
class Served:
    """What came of one request. ``normalised``: its latency over the mean undisturbed one of its service."""

    normalised: float
    is_served: bool
    is_same: bool  # the tokens, as undisturbed
    is_kept: bool  # the promise


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender made of the requests of a seed. ``others`` used so many cores meanwhile."""

    contender: str
    seed: int
    requests: Sequence[Served]
    num_plans: int  # that the daemon carried out
    num_migrated: int
    others: float

    def cells(self) -> Iterator[str]:
        served = [one.normalised for one in self.requests if one.is_served]
        yield from (str(self.seed), self.contender, f"{fmean(served):.2f}", f"{percentile(served, 99):.1f}")
        yield f"{100 * fmean(one.is_kept for one in self.requests):.0f}"
        num_other = sum(one.is_served and not one.is_same for one in self.requests)
        counts = len(self.requests) - len(served), num_other, self.num_plans, self.num_migrated
        yield from map(str, counts)


def latency_s(outcome: Outcome) -> float:
    return (outcome.ended_s if outcome.last_s is None else outcome.last_s) - outcome.sent_s


def serve_alone(requests: Sequence[TraceRequest], seed: int) -> Alone:
    """Serve the requests one by one. Raise `UserError` if one is not served."""
    with warm_mesh(topology_text(STAYS)) as mesh:
        outcomes = mesh.answers(requests, seed, one_by_one=True, keeps_text=True)
    if failed := [one for one in outcomes if not one.is_finished]:
        raise UserError(f"{len(failed)} of {len(outcomes)} requests failed, the first one: {failed[0].reason}")
    return Alone([latency_s(one) for one in outcomes], [one.text for one in outcomes])


def serve(contender: str, seed: int, requests: Sequence[TraceRequest], alone: Alone) -> Run:
    """Serve on a mesh of its own. Raise `UserError` if it does not start."""
    with warm_mesh(topology_text(contender)) as mesh:
        with watched(mesh.pids()) as conditions:
            spread = [replace(one, at_s=alone.duration_s * one.at_s) for one in requests]
            outcomes = mesh.answers(spread, seed, keeps_text=True)
        num_plans = int(mesh.status()["placement"]["changes"]) if contender == DAEMON else 0
        num_migrated = mesh.total("migrations")
    return Run(contender, seed, compare(requests, outcomes, alone), num_plans, num_migrated, conditions.others)


def compare(requests: Sequence[TraceRequest], outcomes: Sequence[Outcome], alone: Alone) -> list[Served]:
    means_s, found = alone.means_s(requests), []
    for request, outcome, alone_s, text in zip(requests, outcomes, alone.latencies_s, alone.texts, strict=True):
        took_s, is_served = latency_s(outcome), outcome.is_finished
        is_same, is_kept = is_served and outcome.text == text, is_served and took_s <= PROMISE * alone_s
        found.append(Served(took_s / means_s[request.service], is_served, is_same, is_kept))
    return found


def run_all(options: argparse.Namespace) -> list[Run]:
    """Serve all seeds, each time with another contender first, so that what drifts falls on both."""
    runs = []
    with working("meshes", 3 * options.seeds) as shown:
        for seed in range(options.seeds):
            requests = draw(seed, options.scale)
            alone = serve_alone(requests, seed)
            shown.advance()
            for contender in turned((STAYS, DAEMON), seed):
                runs.append(serve(contender, seed, requests, alone))
                shown.advance()
    return sorted(runs, key=lambda run: (run.seed, run.contender == DAEMON))


def main() -> None:
    parser = script_parser("bench.placement.daemon", __doc__, seeds=2, out="placement_daemon")
    parser.add_argument("--scale", type=float, default=1.2, metavar="X", help="times as many requests (default: 1.2)")
    options = parser.parse_args()
    with errors_in_a_line():
        runs = run_all(options)
    columns = "mean", "P99", "kept, %", "lost", "other tokens", "plans", "moved"
    print_table("normalised latency, and promises kept", ("seed", ""), columns, (run.cells() for run in runs))
    print(f"others used {fmean(run.others for run in runs):.2f} cores meanwhile")
    write_json(options.out / "daemon.json", runs)


if __name__ == "__main__":
    main()
