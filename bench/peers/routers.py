"""What a gateway costs beside the Rust routers of others: CPU of their processes for each streamed token and request.

    python -m bench.peers.routers [--routers FOLDER] [--also NAME PORT PID ...] [--streams N] [--step-ms MS]
        [--json FILE]

``FOLDER`` holds the commands ``vllm-router`` and ``smg`` (PyPI, both of the same names). They pass through what a mock
backend says; our gateway tokenises, routes, detokenises and encodes what scripted engines say, which is all that vLLM's
API server and a router do together. All take turns under the same load: `mesh bench`'s clients, chats of 64 words.
Engines and backend say a token each ``--step-ms``. ``--also`` takes a server that runs already and serves ``model``,
such as vLLM's (``vllm serve MODEL --served-model-name model``), whose API server is a process of its own.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from bench.gateway.cost import mesh
from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.harness.tables import make_console
from bench.live.ports import free_port
from bench.load.client.http import Address
from bench.load.generator.crew import drive
from bench.load.generator.wire import Assignment, Pace, Recipe, Shape
from bench.load.prompts.wording import assumed
from bench.load.results.outcome import Outcome
from bench.models.references import DEFAULT_MODEL

START_S = 60.0
WORDS = 64
OURS, DIRECT = "MeshServe gateway", "mock backend alone"


@dataclass(frozen=True, slots=True)
class System:
    """``process``: whose CPU is counted, that of all its threads."""

    name: str
    port: int
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(slots=True)
class Cost:
    """Figures of each round."""

    us_per_token: list[float] = field(default_factory=list)  # long answers; a request's own cost spread over them
    us_per_request: list[float] = field(default_factory=list)  # answers of one token
    requests_per_s: list[float] = field(default_factory=list)  # the same
    ttft_ms: list[float] = field(default_factory=list)  # one request at a time

    def medians(self) -> dict[str, float]:
        return {name: statistics.median(getattr(self, name)) for name in self.__slots__}


def load(system: System, num_requests: int, num_slots: int, num_tokens: int, seed: int) -> Assignment:
    fields = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "ignore_eos": True}
    recipe = Recipe("chat", sends_ids=False, seed=seed, fillers=assumed(), fields=fields)
    shapes = (Shape("model", WORDS, num_tokens),) * num_requests
    return Assignment(Address("127.0.0.1", system.port), {}, recipe, shapes, Pace(None, num_slots), START_S)


def sent(given: Assignment) -> list[Outcome]:
    """Raise `RuntimeError` if a request fails."""
    outcomes = asyncio.run(drive([given], asyncio.Event())).outcomes
    if lost := [outcome for outcome in outcomes if not outcome.is_finished]:
        raise RuntimeError(f"port {given.address.port}: {len(lost)} requests failed, the first one: {lost[0].reason}")
    return outcomes


def measure(system: System, cost: Cost, num_streams: int, num_tokens: int, seed: int) -> None:
    before = system.cpu_s()
    outcomes = sent(load(system, 4 * num_streams, num_streams, num_tokens, seed))
    cost.us_per_token.append(1e6 * (system.cpu_s() - before) / sum(one.output_tokens for one in outcomes))

    before = system.cpu_s()
    outcomes = sent(load(system, 20 * num_streams, num_streams, 1, seed))
    cost.us_per_request.append(1e6 * (system.cpu_s() - before) / len(outcomes))
    cost.requests_per_s.append(len(outcomes) / max(one.ended_s for one in outcomes))

    outcomes = sent(load(system, 30, 1, 1, seed))
    cost.ttft_ms.append(1e3 * statistics.median(one.ttft_s for one in outcomes if one.ttft_s is not None))


# --- who is measured --------------------------------------------------------------------------------------------------


@contextmanager
def process(command: Sequence[str], logs: Path) -> Iterator[psutil.Process]:
    with logs.open("wb") as file:
        started = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield psutil.Process(started.pid)
    finally:
        started.terminate()
        started.wait(START_S)


@contextmanager
def routers(folder: Path, backend: str, logs: Path) -> Iterator[list[System]]:
    """Both of them, ready."""
    commands = {"vllm-router": [str(folder / "vllm-router")], "smg": [str(folder / "smg"), "launch"]}
    with ExitStack() as stack:
        found = []
        for name, command in commands.items():
            port = free_port()
            where = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
            what = ["--worker-urls", backend, "--policy", "round_robin"]
            running = stack.enter_context(process([*command, *where, *what], logs / f"{name}.log"))
            found.append(System(name, port, running))
            wait_until_ready(found[-1], logs / f"{name}.log")
        yield found


def wait_until_ready(system: System, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            sent(load(system, 1, 1, 1, seed=0))
        except RuntimeError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{system.name} was not ready: {error}; it wrote: {log.read_text()[-800:]}"
                ) from None
            time.sleep(0.5)
        else:
            return


@contextmanager
def mock(step_ms: float, logs: Path) -> Iterator[System]:
    port = free_port()
    pace = ["--first-ms", str(step_ms), "--gap-ms", str(step_ms), "--model", "model"]
    command = [sys.executable, "-m", "bench.gateway.mock_backend", "--port", str(port), *pace]
    with process(command, logs / "mock.log") as running:
        system = System(DIRECT, port, running)
        wait_until_ready(system, logs / "mock.log")
        yield system


def main() -> int:
    parser = script_parser("bench.peers.routers", __doc__)
    parser.add_argument("--routers", type=Path, metavar="FOLDER", help="holds vllm-router and smg")
    parser.add_argument(
        "--also",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "PORT", "PID"),
        help="a server that runs already",
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer our gateway uses; must be prepared")
    parser.add_argument("--streams", type=int, default=32, metavar="N", help="concurrent (default: 32)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of an answer (default: 64)")
    parser.add_argument("--step-ms", type=float, default=5.0, metavar="MS", help="between tokens (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    add_json(parser)
    options = parser.parse_args()
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        direct = stack.enter_context(mock(options.step_ms, logs))
        backend = f"http://127.0.0.1:{direct.port}"
        others = [System(name, int(port), psutil.Process(int(pid))) for name, port, pid in options.also]
        if options.routers is not None:
            others += stack.enter_context(routers(options.routers, backend, logs))
        gateway = stack.enter_context(mesh(options.model, options.step_ms, records=False))
        systems = [direct, *others, System(OURS, gateway.port, gateway.process)]
        costs = {system.name: Cost() for system in systems}
        for turn in range(options.rounds):
            for system in systems:
                measure(system, costs[system.name], options.streams, options.tokens, seed=turn)
            print(f"round {turn + 1} of {options.rounds} done", file=sys.stderr)
    medians = {name: cost.medians() for name, cost in costs.items()}
    table = Table("medians", "CPU us / token", "CPU us / request of 1 token", "requests/s of 1 token", "TTFT alone, ms")
    for name, line in medians.items():
        table.add_row(name, *(f"{value:.1f}" for value in line.values()))
    make_console().print(table)
    if options.json is not None:
        write_json(options.json, medians)
    return 0


if __name__ == "__main__":
    sys.exit(main())
