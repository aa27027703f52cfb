"""Services whose requests shift from one to another and back, and meshes of two engines that serve them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.live.lengths import Bounds
from bench.live.ports import free_port
from bench.live.sharing import TOKEN_IDS
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import patient_mesh

Placement = Mapping[str, tuple[str, ...]]  # which services an engine holds
Placements = tuple[Placement, Placement, Placement]  # of each phase


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

    def counts(self, scale: float) -> list[int]:
        """Return the number of requests of each phase."""
        return [max(1, round(scale * self.num_requests * share)) for share in self.shares]


@dataclass(frozen=True, slots=True)
class Contender:
    """With a daemon, which changes what it wants to, the placement of the first phase counts."""

    name: str
    scheduling: str
    placements: Placements
    has_daemon: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """``load``: seconds that requests take alone, over those that two engines have for all of them; batches serve more
    than one request at a time.
    """

    services: Mapping[str, Service]
    load: float
    contenders: tuple[Contender, ...]


def _steady(first: tuple[str, ...], second: tuple[str, ...]) -> Placements:
    placement = {"first": first, "second": second}
    return placement, placement, placement


_OFTEN_SELDOM, _SELDOM_OFTEN, _STEADY = (0.45, 0.1, 0.45), (0.15, 0.7, 0.15), (0.33, 0.34, 0.33)
NUM_PHASES = len(_OFTEN_SELDOM)
_LONG = Bounds(256, 768, 2048, 0.5), Bounds(16, 64, 192, 0.6)
_SHORT = Bounds(16, 64, 256, 0.5), Bounds(4, 8, 48, 0.6)
_BOTH = ("long", "short")
_SHARED, _EACH, _FOR_LONG = _steady(_BOTH, _BOTH), _steady(("long",), ("short",)), _steady(_BOTH, ("long",))
TWO = Setting(
    {
        "long": Service(*_LONG, 45, _OFTEN_SELDOM, (2000, 150)),
        "short": Service(*_SHORT, 225, _SELDOM_OFTEN, (500, 150)),
    },
    3.5,
    (
        *(Contender(name, name, _SHARED) for name in ("db", "fcfs", "round_robin", "slo")),
        Contender("an engine each", "fcfs", _EACH),
        Contender("plan kept", "db", _FOR_LONG),
        Contender("plans changed", "db", (_FOR_LONG[0], {"first": _BOTH, "second": ("short",)}, _FOR_LONG[0])),
    ),
)
_DOCUMENTS = Bounds(1024, 1536, 2048, 0.2), Bounds(4, 8, 16, 0.4)
_CHAT = Bounds(64, 128, 512, 0.5), Bounds(16, 32, 64, 0.5)
_FOR_LEFT = _steady(("left", "chat"), ("left", "right"))
THREE = Setting(  # one more than fit: two services at most on an engine (SeaLLM, section 6.1), and each needs a place
    {
        "left": Service(*_DOCUMENTS, 220, _OFTEN_SELDOM, (2000, 150)),
        "right": Service(*_DOCUMENTS, 200, _SELDOM_OFTEN, (2000, 150)),
        "chat": Service(*_CHAT, 60, _STEADY, (1000, 150)),
    },
    1.35,
    (Contender("db", "db", _FOR_LEFT), Contender("daemon", "db", _FOR_LEFT, has_daemon=True)),
)
SETTINGS = {"two": TWO, "three": THREE}
ENGINE = (
    'backend = "simulated"\nprofile = "a10-llama2-7b-tp1"\nchunk_tokens = 2048\nmax_running = 32\nmax_waiting = 100000'
)
DAEMON = "[placement]\ninterval_s = 8\nshortest_s = 6\nlongest_s = 12\nimprove_s = 1\n"  # phases are short

# --- what is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """``place``: the time of its arrival, as a fraction of the whole time."""

    service: str
    phase: int
    place: float
    prompt: list[int]
    num_output: int


def draw(setting: Setting, seed: int, scale: float = 1.0) -> list[Request]:
    """Draw ``scale`` times as many as the setting says, in order of arrival: Poisson within a phase."""
    requests = (
        _request(service, name, phase, Random(f"{seed}/{name}/{phase}/{number}"))
        for name, service in setting.services.items()
        for phase, count in enumerate(service.counts(scale))
        for number in range(count)
    )
    return sorted(requests, key=lambda request: request.place)


def _request(service: Service, name: str, phase: int, random: Random) -> Request:
    place = (phase + random.random()) / NUM_PHASES
    prompt = random.choices(TOKEN_IDS, k=service.prompt.draw(random))
    return Request(name, phase, place, prompt, service.answer.draw(random))


# --- who serves it ----------------------------------------------------------------------------------------------------


def topology_text(setting: Setting, scheduling: str, placement: Placement, port: int) -> str:
    lines: list[str] = []
    for name, service in setting.services.items():
        lines += [f'[services.{name}]\nmodel = "{DEFAULT_MODEL}"']
        lines += ["ttft_ms = {}\ntpot_ms = {}".format(*service.slo_ms)]
    for engine, services in placement.items():
        lines += [f'[engines.{engine}]\nservices = {json.dumps(services)}\nscheduling = "{scheduling}"', ENGINE]
    lines += [f'[gateways.gateway]\nport = {port}\nmax_waiting = 100000\n[policy]\nname = "least_loaded"']
    return "\n".join([patient_mesh("sharing-live"), *lines, ""])


def write_topologies(folder: Path, setting: Setting, contender: Contender) -> tuple[Path, dict[int, Path]]:
    """Write the topology of the mesh, and those that it changes to with a phase."""
    port, paths = free_port(), list[Path]()
    for phase, placement in enumerate(contender.placements):
        text = topology_text(setting, contender.scheduling, placement, port)
        paths.append(folder / f"phase-{phase}.toml")
        paths[-1].write_text(text + DAEMON if contender.has_daemon else text)
    placements = contender.placements
    changes = {phase: paths[phase] for phase in range(1, NUM_PHASES) if placements[phase] != placements[phase - 1]}
    return paths[0], changes
