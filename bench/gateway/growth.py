"""How the control plane grows: CPU, status traffic, decisions and memory, from 8 engines to 128 and 1 to 4 gateways.

    python -m bench.gateway.growth [--cells 8x1 32x1 128x1 128x2 128x4] [--rate 40] [--seconds 10] [--json FILE]

Gateways, sockets, engine cores, statuses, HTTP and clients are real; engines wait instead of computing (`backend =
"simulated"`), ``--together`` of them in each process (1: a process each), so that 128 fit on a small machine. Each cell
``ENGINESxGATEWAYS`` is a mesh of its own: started, left alone for ``--seconds``, then loaded with ``--rate`` requests a
second in all, whatever its size. What a request costs is what the load adds. Statuses of engines are delivered to all
gateways (engines hear those engines alone that they have to do with), statuses of gateways to all engines and gateways.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import httpx
import psutil
import zmq
from prometheus_client.parser import text_string_to_metric_families
from rich.table import Table

from bench.gateway.one_gateway import command
from bench.gateway.servers import Server, cpu_s, is_alive, process, started
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console, make_table
from bench.live.ports import free_port
from bench.load.client.http import Address
from bench.load.generator.crew import drive
from bench.load.generator.wire import Assignment, Pace, Recipe, Shape
from bench.load.prompts.wording import assumed
from bench.models.references import DEFAULT_MODEL
from mesh.addresses import supervisor_id
from mesh.directory import directory
from mesh.errors import CommandError, UserError
from mesh.sockets.sockets import PULSE
from mesh.topology.parse import load
from mesh.topology.schema import LOCAL_HOST, Topology
from mesh.wire.control import ProcessState
from mesh.wire.frames import TOPIC_STATUS, Sender
from mesh.wire.messages import BroadcastMessage, Codec
from mesh.wire.status import EngineStatus
from router.api.http.server import ADMIN_PORT_OFFSET

PROFILE = "h100-llama2-70b-tp4"
WORDS, TOKENS = 64, 16  # of a request
START_S, ANSWER_S = 300.0, 60.0
QUEUED = "vllm:request_queue_time_seconds"  # from arrival at the gateway to dispatch
TOPOLOGY = """
[mesh]
name = "growth-{port}"
log_level = "warning"
lease_ms = 10000
[services.model]
model = {model}
ttft_ms = 60000
tpot_ms = 60000
[engines.engine]
role = "multiplex"
count = {engines}
backend = "simulated"
profile = "{profile}"
"""
GATEWAY = """
[gateways.gateway-{index}]
port = {port}
admin_port = {admin_port}
max_requests = 4096
"""


@dataclass(frozen=True, slots=True)
class Cell:
    engines: int
    gateways: int


Grown = dict[str, float]  # what was measured of a cell, by the columns that have its words and form


# --- a mesh -----------------------------------------------------------------------------------------------------------


class Observer:
    """Hears what all processes publish, in a thread, and binds the supervisor's address, which all listen to."""

    def __init__(self, topology: Topology) -> None:
        endpoints = directory(topology)
        self.messages: Counter[str] = Counter()  # by process
        self.num_bytes: Counter[str] = Counter()
        self._ready: set[str] = set()
        self._engines = {engine.id for engine in topology.engines}
        self._num_gateways = len(topology.gateways)
        self._codec: Codec[BroadcastMessage] = Codec(BroadcastMessage)
        self._context = zmq.Context()
        self._supervisor = self._context.socket(zmq.PUB)
        self._supervisor.bind(endpoints[supervisor_id(LOCAL_HOST)].broadcast)
        self._heard = self._context.socket(zmq.SUB)
        self._heard.subscribe(TOPIC_STATUS)
        self._heard.setsockopt(zmq.RCVTIMEO, 100)
        for spec in topology.serving:
            self._heard.connect(endpoints[spec.id].broadcast)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _listen(self) -> None:
        while not self._is_over.is_set():
            try:
                frames = self._heard.recv_multipart()
            except zmq.Again:
                continue
            process = Sender.decode(frames[2]).process
            self.messages[process] += 1
            self.num_bytes[process] += sum(map(len, frames))
            if process in self._engines - self._ready and frames[3] != PULSE:
                status = self._codec.decode(frames[3])
                if isinstance(status, EngineStatus) and status.state is ProcessState.READY:
                    self._ready.add(process)

    def delivered(self, published: Mapping[str, int]) -> int:
        """What that comes to at all who listen."""
        of_engines = sum(number for process, number in list(published.items()) if process in self._engines)
        of_gateways = sum(published.values()) - of_engines
        return of_engines * self._num_gateways + of_gateways * (len(self._engines) + self._num_gateways - 1)

    def until_all_are_ready(self, hosts: Sequence[psutil.Process]) -> None:
        """Raise `CommandError`, at once if one of the processes that they run in has ended."""
        deadline = time.monotonic() + START_S
        while self._ready != self._engines:
            if ended := [host.pid for host in hosts if not is_alive(host)]:
                raise CommandError(f"processes {ended}, which have engines, ended before all engines were ready")
            if time.monotonic() > deadline:
                raise CommandError(f"{len(self._ready)} of {len(self._engines)} engines were ready in {START_S:g} s")
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Mesh:
    gateways: Sequence[Server]
    hosts: Sequence[psutil.Process]
    observer: Observer


@contextmanager
def mesh(cell: Cell, model: str, profile: str, together: int) -> Iterator[Mesh]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = [free_port() for _ in range(cell.gateways)]
        text = TOPOLOGY.format(port=ports[0], model=json.dumps(model), engines=cell.engines, profile=profile)
        text += "".join(
            GATEWAY.format(index=index, port=port, admin_port=port + ADMIN_PORT_OFFSET)
            for index, port in enumerate(ports)
        )
        path = folder / "topology.toml"
        path.write_text(text)
        os.environ["MESHSERVE_RUNTIME_DIR"] = str(folder)  # the observer's, too
        topology = load(path)
        (folder / topology.name).mkdir()
        observer = stack.enter_context(Observer(topology))
        ids = [engine.id for engine in topology.engines]
        groups = [ids[first : first + together] for first in range(0, len(ids), together)]
        lines = [[sys.executable, "-m", "bench.gateway.engine_host", str(path), *group] for group in groups]
        hosts = [stack.enter_context(process(line)) for line in lines]
        gateways = [
            stack.enter_context(started(spec.id, spec.port, command("router", path, spec.id)))
            for spec in topology.gateways
        ]
        observer.until_all_are_ready(hosts)
        for gateway in gateways:
            gateway.until_it_answers()
        yield Mesh(gateways, hosts, observer)


# --- what is measured -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """Clock, CPU seconds and messages: since the start, or between two moments."""

    at_s: float
    gateway_s: float
    engine_s: float
    published: int
    delivered: int
    delivered_bytes: int

    @classmethod
    def of(cls, mesh: Mesh) -> "Counted":
        observer = mesh.observer
        return cls(
            time.perf_counter(),
            cpu_s([gateway.process for gateway in mesh.gateways]),
            cpu_s(mesh.hosts),
            observer.messages.total(),
            observer.delivered(observer.messages),
            observer.delivered(observer.num_bytes),
        )

    def since(self, before: "Counted") -> "Counted":
        return Counted(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


def assignments(gateways: Sequence[Server], rate: float, seconds: float, seed: int) -> list[Assignment]:
    """An even part of the load for each gateway."""
    fields = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "ignore_eos": True}
    made = []
    for index, gateway in enumerate(gateways):
        stream, at_s, due_s = random.Random(f"{seed}/{index}"), 0.0, []
        while (at_s := at_s + stream.expovariate(rate / len(gateways))) < seconds:
            due_s.append(at_s)
        recipe = Recipe("completions", sends_ids=False, seed=seed + index, fillers=assumed(), fields=fields)
        shapes = (Shape("model", WORDS, TOKENS),) * len(due_s)
        made.append(Assignment(Address("127.0.0.1", gateway.port), {}, recipe, shapes, Pace(tuple(due_s)), ANSWER_S))
    return made


def queued(gateways: Sequence[Server]) -> tuple[float, float]:
    """Seconds that requests waited for their decision, and their number, of all gateways."""
    total, count = 0.0, 0.0
    for gateway in gateways:
        text = httpx.get(f"http://127.0.0.1:{gateway.port + ADMIN_PORT_OFFSET}/metrics").text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                total += sample.value * (sample.name == f"{QUEUED}_sum")
                count += sample.value * (sample.name == f"{QUEUED}_count")
    return total, count


def measure(cell: Cell, options: argparse.Namespace) -> Grown:
    """Raise `CommandError` if a request fails."""
    with mesh(cell, options.model, options.profile, options.together) as made:
        _sent(assignments(made.gateways, options.rate, 2.0, seed=-1))
        before = Counted.of(made)
        time.sleep(options.seconds)
        idle = Counted.of(made).since(before)
        queued_before, before = queued(made.gateways), Counted.of(made)
        outcomes = _sent(assignments(made.gateways, options.rate, options.seconds, seed=0))
        loaded = Counted.of(made).since(before)
        waited_s, num_queued = (after - then for after, then in zip(queued(made.gateways), queued_before, strict=True))
        gateway_mb, host_mb = (
            sum(one.memory_info().rss for one in processes) / 1e6
            for processes in ([gateway.process for gateway in made.gateways], made.hosts)
        )
    idle_gateway, idle_engine = idle.gateway_s / idle.at_s, idle.engine_s / idle.at_s
    return {
        "idle_gateway_cores": idle_gateway,
        "idle_engine_cores": idle_engine,
        "published_per_s": idle.published / idle.at_s,
        "delivered_per_s": idle.delivered / idle.at_s,
        "delivered_mb_per_s": idle.delivered_bytes / idle.at_s / 1e6,
        "loaded_published_per_s": loaded.published / loaded.at_s,
        "gateway_ms_per_request": 1e3 * (loaded.gateway_s - idle_gateway * loaded.at_s) / len(outcomes),
        "engine_ms_per_request": 1e3 * (loaded.engine_s - idle_engine * loaded.at_s) / len(outcomes),
        "decision_ms": 1e3 * waited_s / max(1.0, num_queued),
        "ttft_ms": 1e3 * statistics.median(outcomes),
        "gateway_mb": gateway_mb / cell.gateways,
        "engine_mb": host_mb / cell.engines,
    }


def _sent(given: Sequence[Assignment]) -> list[float]:
    """TTFT of each, seconds."""
    outcomes = asyncio.run(drive(given, asyncio.Event())).outcomes
    if lost := [outcome for outcome in outcomes if not outcome.is_finished]:
        raise CommandError(f"{len(lost)} of {len(outcomes)} requests failed, the first one: {lost[0].reason}")
    return [outcome.ttft_s for outcome in outcomes if outcome.ttft_s is not None]


# CPU is user and system; idle cores are of all such processes together. A decision is from arrival to dispatch (mean),
# TTFT as clients see it (median), memory resident.
COLUMNS = {
    "idle_gateway_cores": ("gateways idle, cores", "{:.3f}"),
    "idle_engine_cores": ("engines idle, cores", "{:.3f}"),
    "published_per_s": ("statuses/s", "{:.0f}"),
    "delivered_per_s": ("delivered/s", "{:.0f}"),
    "delivered_mb_per_s": ("MB/s", "{:.2f}"),
    "loaded_published_per_s": ("statuses/s, load", "{:.0f}"),
    "gateway_ms_per_request": ("gateway ms/request", "{:.2f}"),
    "engine_ms_per_request": ("engine ms/request", "{:.2f}"),
    "decision_ms": ("decision, ms", "{:.2f}"),
    "ttft_ms": ("TTFT, ms", "{:.1f}"),
    "gateway_mb": ("MB a gateway", "{:.0f}"),
    "engine_mb": ("MB an engine", "{:.1f}"),
}


def table(grown: Mapping[Cell, Grown]) -> Table:
    made = make_table("engines x gateways", ("", *(f"{cell.engines} x {cell.gateways}" for cell in grown)))
    for key, (title, form) in COLUMNS.items():
        made.add_row(title, *(form.format(one[key]) for one in grown.values()))
    return made


def cell(text: str) -> Cell:
    engines, separator, gateways = text.partition("x")
    if not (separator and engines.isdecimal() and gateways.isdecimal() and int(engines) and int(gateways)):
        raise argparse.ArgumentTypeError(f"{text!r}: want ENGINESxGATEWAYS, such as 32x2")
    return Cell(int(engines), int(gateways))


def main() -> None:
    parser = script_parser("bench.gateway.growth", __doc__)
    usual = ["8x1", "32x1", "128x1", "128x2", "128x4"]
    parser.add_argument("--cells", type=cell, nargs="+", default=[*map(cell, usual)], metavar="ENGINESxGATEWAYS")
    parser.add_argument("--together", type=int, default=16, metavar="N", help="engines in a process (default: 16)")
    parser.add_argument("--profile", default=PROFILE, help=f"of the engines; a small one takes less memory ({PROFILE})")
    parser.add_argument("--rate", type=float, default=40.0, metavar="R", help="requests a second in all (default: 40)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="without load, and with (default: 10)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer gateways use; must be prepared")
    add_json(parser)
    options = parser.parse_args()
    try:
        grown = {each: measure(each, options) for each in options.cells}
    except (CommandError, UserError) as error:
        raise SystemExit(str(error)) from None
    make_console().print(table(grown))
    if options.json is not None:
        write_json(options.json, [asdict(cell) | one for cell, one in grown.items()])


if __name__ == "__main__":
    main()
