"""Two services whose requests shift from one to the other and back, and meshes of two engines that serve them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.engine_under_test import DEFAULT_MODEL
from bench.gateway_cost import free_port
from bench.live_workload import Bounds
from bench.sharing import TOKEN_IDS
from bench.sharing_cost import BYTE_LLAMA

PRINTABLE = range(32, 127)
Services = tuple[str, ...]
Placement = Mapping[str, Services]  # which services an engine holds


@dataclass(frozen=True, slots=True)
class Service:
    """``shares`` of its requests arrive in each phase; phases are equally long."""

    model: str
    token_ids: range  # that its prompts are drawn from
    prompt: Bounds
    answer: Bounds
    num_requests: int
    shares: tuple[float, ...]

    def counts(self, scale: float) -> list[int]:
        """Requests of each phase."""
        return [max(1, round(scale * self.num_requests * share)) for share in self.shares]


@dataclass(frozen=True, slots=True)
class Setting:
    """``services``: the one with long requests, then the one with short ones. ``load``: seconds that requests take
    alone, over those that two engines have for all of them; batches serve more than one request at a time.
    """

    services: Mapping[str, Service]
    engine: str  # what all engines are, in a topology's words
    load: float


_OFTEN_SELDOM, _SELDOM_OFTEN = (0.45, 0.1, 0.45), (0.15, 0.7, 0.15)
NUM_PHASES = len(_OFTEN_SELDOM)
TORCH = Setting(
    {
        "chat": Service(DEFAULT_MODEL, TOKEN_IDS, Bounds(32, 96, 384, 0.7), Bounds(8, 24, 96, 0.6), 40, _OFTEN_SELDOM),
        "bytes": Service(BYTE_LLAMA, PRINTABLE, Bounds(32, 96, 384, 0.7), Bounds(16, 64, 320, 0.8), 160, _SELDOM_OFTEN),
    },
    'threads = 1\nkv_memory = "256MiB"\nchunk_tokens = 256',
    1.6,
)
SIMULATED = Setting(
    {
        "long": Service(
            DEFAULT_MODEL, TOKEN_IDS, Bounds(256, 768, 2048, 0.5), Bounds(16, 64, 192, 0.6), 45, _OFTEN_SELDOM
        ),
        "short": Service(DEFAULT_MODEL, TOKEN_IDS, Bounds(16, 64, 256, 0.5), Bounds(4, 8, 48, 0.6), 225, _SELDOM_OFTEN),
    },
    'backend = "simulated"\nprofile = "a10-llama2-7b-tp1"\nchunk_tokens = 2048',
    3.5,
)
SETTINGS = {"torch": TORCH, "simulated": SIMULATED}
DAEMON = "[placement]\ninterval_s = 5\nshortest_s = 4\nlongest_s = 10\nimprove_s = 1\n"  # phases are short

# --- what is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """``place``: when it arrives, as a fraction of the whole time."""

    service: str
    phase: int
    place: float
    prompt: list[int]
    num_output: int


def draw(setting: Setting, seed: int, scale: float = 1.0) -> list[Request]:
    """In order of arrival: Poisson within a phase. ``scale`` times as many as the setting says."""
    requests = (
        _request(service, name, phase, Random(f"{seed}/{name}/{phase}/{number}"))
        for name, service in setting.services.items()
        for phase, count in enumerate(service.counts(scale))
        for number in range(count)
    )
    return sorted(requests, key=lambda request: request.place)


def _request(service: Service, name: str, phase: int, random: Random) -> Request:
    place = (phase + random.random()) / NUM_PHASES
    prompt = random.choices(service.token_ids, k=service.prompt.draw(random))
    return Request(name, phase, place, prompt, service.answer.draw(random))


# --- who serves it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contender:
    """``placements`` of each phase; with a daemon, which changes what it wants to, that of the first one counts."""

    name: str
    scheduling: str
    placements: Sequence[Placement]
    has_daemon: bool = False

    def changes(self) -> Iterator[tuple[int, Placement]]:
        """The phases that begin with another placement than the one before them."""
        for phase in range(1, len(self.placements)):
            if self.placements[phase] != self.placements[phase - 1]:
                yield phase, self.placements[phase]


def contenders(setting: Setting) -> list[Contender]:
    """Both services on both engines by discipline; an engine each; and placements made for a phase's traffic."""
    large, small = setting.services
    both = {"first": (large, small), "second": (large, small)}
    apart = {"first": (large,), "second": (small,)}
    for_large = {"first": (large, small), "second": (large,)}
    for_small = {"first": (large, small), "second": (small,)}
    shared = [Contender(name, name, [both] * NUM_PHASES) for name in ("db", "fcfs", "round_robin", "slo")]
    return [
        *shared,
        Contender("an engine each", "fcfs", [apart] * NUM_PHASES),
        Contender("plan kept", "db", [for_large] * NUM_PHASES),
        Contender("plans changed", "db", [for_large, for_small, for_large]),
        Contender("daemon", "db", [for_large] * NUM_PHASES, has_daemon=True),
    ]


def topology_text(setting: Setting, scheduling: str, placement: Placement, port: int) -> str:
    """Patient on a machine that is busy. Promises are those of `deploy/shared.toml`; only `slo` looks at them."""
    lines = ['[mesh]\nname = "sharing-live"\nlog_level = "warning"\nlease_ms = 5000\nstart_s = 600']
    for (name, service), promises in zip(setting.services.items(), ((5000, 250), (2000, 100)), strict=True):
        lines += [f"[services.{name}]\nmodel = {json.dumps(service.model)}"]
        lines += ["ttft_ms = {}\ntpot_ms = {}".format(*promises)]
    for engine, services in placement.items():
        lines += [f"[engines.{engine}]\nservices = {json.dumps(services)}", setting.engine]
        lines += [f'scheduling = "{scheduling}"\nmax_running = 32\nmax_waiting = 100000']
    lines += [f'[gateways.gateway]\nport = {port}\nmax_waiting = 100000\n[policy]\nname = "least_loaded"']
    return "\n".join(lines) + "\n"


def write_topologies(folder: Path, setting: Setting, contender: Contender) -> tuple[Path, dict[int, Path]]:
    """Of the mesh, and of what it changes to with a phase."""
    port = free_port()

    def write(name: str, placement: Placement) -> Path:
        path = folder / f"{name}.toml"
        text = topology_text(setting, contender.scheduling, placement, port)
        path.write_text(text + DAEMON if contender.has_daemon else text)
        return path

    changes = {phase: write(f"phase-{phase}", placement) for phase, placement in contender.changes()}
    return write("topology", contender.placements[0]), changes
