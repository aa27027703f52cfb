"""Services whose requests shift from one to another and back, and meshes of two engines that serve them."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.engine.sharing_cost import BYTE_LLAMA
from bench.live.lengths import Bounds
from bench.live.ports import free_port
from bench.live.sharing import TOKEN_IDS
from bench.models.references import DEFAULT_MODEL
from bench.papers.live import patient_mesh

PRINTABLE = range(32, 127)
Services = tuple[str, ...]
Placement = Mapping[str, Services]  # which services an engine holds


@dataclass(frozen=True, slots=True)
class Service:
    """``shares`` of its requests arrive in each phase; phases are equally long. ``slo_ms``: TTFT and TPOT, by which the
    placement daemon judges; `slo` schedules by them, other disciplines do not look.
    """

    model: str
    token_ids: range  # that its prompts are drawn from
    prompt: Bounds
    answer: Bounds
    num_requests: int
    shares: tuple[float, ...]
    slo_ms: tuple[int, int]

    def counts(self, scale: float) -> list[int]:
        """Return the number of requests of each phase."""
        return [max(1, round(scale * self.num_requests * share)) for share in self.shares]


@dataclass(frozen=True, slots=True)
class Setting:
    """``load``: seconds that requests take alone, over those that two engines have for all of them; batches serve more
    than one request at a time.

    ``shared``: the placement on which disciplines are compared. ``least``: without sharing where that is possible;
    daemons begin with it, as SeaLLM gives a new service devices of its own. ``by_phase``: made for each phase.
    """

    services: Mapping[str, Service]
    engine: str  # what all engines are, in a topology's words
    load: float
    shared: Placement
    least: Placement
    by_phase: Sequence[Placement]


_OFTEN_SELDOM, _SELDOM_OFTEN, _STEADY = (0.45, 0.1, 0.45), (0.15, 0.7, 0.15), (0.33, 0.34, 0.33)
NUM_PHASES = len(_OFTEN_SELDOM)


def _two(engine: str, load: float, services: Mapping[str, Service]) -> Setting:
    """Make a setting of a service with long requests, then one with short ones. An engine may hold both."""
    both = large, small = tuple(services)
    for_large, for_small = {"first": both, "second": (large,)}, {"first": both, "second": (small,)}
    return Setting(
        services,
        engine,
        load,
        shared={"first": both, "second": both},
        least={"first": (large,), "second": (small,)},
        by_phase=[for_large, for_small, for_large],
    )


_CHATS, _TURNS = Bounds(32, 96, 384, 0.7), (Bounds(8, 24, 96, 0.6), Bounds(16, 64, 320, 0.8))
TORCH = _two(
    'threads = 1\nkv_memory = "256MiB"\nchunk_tokens = 256',
    1.6,
    {
        "chat": Service(DEFAULT_MODEL, TOKEN_IDS, _CHATS, _TURNS[0], 40, _OFTEN_SELDOM, (5000, 250)),
        "bytes": Service(BYTE_LLAMA, PRINTABLE, _CHATS, _TURNS[1], 160, _SELDOM_OFTEN, (2000, 100)),
    },
)
_A10 = 'backend = "simulated"\nprofile = "a10-llama2-7b-tp1"\nchunk_tokens = 2048'
_LONG = Bounds(256, 768, 2048, 0.5), Bounds(16, 64, 192, 0.6)
_SHORT = Bounds(16, 64, 256, 0.5), Bounds(4, 8, 48, 0.6)
SIMULATED = _two(
    _A10,
    3.5,
    {
        "long": Service(DEFAULT_MODEL, TOKEN_IDS, *_LONG, 45, _OFTEN_SELDOM, (2000, 150)),
        "short": Service(DEFAULT_MODEL, TOKEN_IDS, *_SHORT, 225, _SELDOM_OFTEN, (500, 150)),
    },
)
_FOR_LEFT = {"first": ("left", "chat"), "second": ("left", "right")}
_FOR_RIGHT = {"first": ("right", "chat"), "second": ("left", "right")}
_DOCUMENTS = Bounds(1024, 1536, 2048, 0.2), Bounds(4, 8, 16, 0.4)
_CHAT = Bounds(64, 128, 512, 0.5), Bounds(16, 32, 64, 0.5)
THREE = Setting(  # one more than fit: two services at most on an engine (SeaLLM, section 6.1), and each needs a place
    {
        "left": Service(DEFAULT_MODEL, TOKEN_IDS, *_DOCUMENTS, 220, _OFTEN_SELDOM, (2000, 150)),
        "right": Service(DEFAULT_MODEL, TOKEN_IDS, *_DOCUMENTS, 200, _SELDOM_OFTEN, (2000, 150)),
        "chat": Service(DEFAULT_MODEL, TOKEN_IDS, *_CHAT, 60, _STEADY, (1000, 150)),
    },
    _A10,
    1.35,
    shared=_FOR_LEFT,
    least=_FOR_LEFT,
    by_phase=[_FOR_LEFT, _FOR_RIGHT, _FOR_LEFT],
)
SETTINGS = {"torch": TORCH, "simulated": SIMULATED, "three": THREE}
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
        """Yield the phases that begin with another placement than the one before them."""
        for phase in range(1, len(self.placements)):
            if self.placements[phase] != self.placements[phase - 1]:
                yield phase, self.placements[phase]


DISCIPLINES = ("db", "fcfs", "round_robin")


def contenders(setting: Setting) -> list[Contender]:
    """List disciplines on shared engines, own engines, placements made for a phase's traffic, and daemons."""
    kept, changed = [setting.by_phase[0]] * NUM_PHASES, setting.by_phase
    found = [Contender(name, name, [setting.shared] * NUM_PHASES) for name in (*DISCIPLINES, "slo")]
    if setting.least != setting.shared:
        found.append(Contender("an engine each", "fcfs", [setting.least] * NUM_PHASES))
    if kept[0] != setting.shared:
        found.append(Contender("plan kept", "db", kept))
    found.append(Contender("plans changed", "db", changed))
    begun = [setting.least] * NUM_PHASES
    return [*found, *(Contender(f"daemon, {name}", name, begun, has_daemon=True) for name in DISCIPLINES)]


def names_of(settings: Collection[Setting]) -> list[str]:
    """Return the names of all their contenders, each once."""
    return list(dict.fromkeys(one.name for setting in settings for one in contenders(setting)))


def topology_text(setting: Setting, scheduling: str, route: Placement, port: int) -> str:
    lines: list[str] = []
    for name, service in setting.services.items():
        lines += [f"[services.{name}]\nmodel = {json.dumps(service.model)}"]
        lines += ["ttft_ms = {}\ntpot_ms = {}".format(*service.slo_ms)]
    for engine, services in route.items():
        lines += [f"[engines.{engine}]\nservices = {json.dumps(services)}", setting.engine]
        lines += [f'scheduling = "{scheduling}"\nmax_running = 32\nmax_waiting = 100000']
    lines += [f'[gateways.gateway]\nport = {port}\nmax_waiting = 100000\n[policy]\nname = "least_loaded"']
    return "\n".join([patient_mesh("sharing-live"), *lines, ""])


def write_topologies(folder: Path, setting: Setting, contender: Contender) -> tuple[Path, dict[int, Path]]:
    """Write the topology of the mesh, and those that it changes to with a phase."""
    port = free_port()

    def write(name: str, route: Placement) -> Path:
        path = folder / f"{name}.toml"
        text = topology_text(setting, contender.scheduling, route, port)
        path.write_text(text + DAEMON if contender.has_daemon else text)
        return path

    changes = {phase: write(f"phase-{phase}", route) for phase, route in contender.changes()}
    return write("topology", contender.placements[0]), changes
