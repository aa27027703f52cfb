"""A mesh beside one vLLM: goodput on the same cores under the same traffic.

    python -m bench.peers.meshes --vllm-python PATH [--vllm-env NAME=VALUE] [--only NAME ...]
        [--input-tokens MIN:MAX] [--ttft MS] [--json FILE]

Each contestant is started, loaded at a few rates by `mesh bench` and stopped; then comes the next one. All serve the
same model folder under the same name, in float32 (``mesh-int8`` aside), with as many threads for computing as there are
cores; a mesh has a prefill and a multiplexing engine. Those of ``mesh-idle-cores`` compute with all cores while the
other one rests (``max_threads``). Requests are the same for everybody: prompts, lengths and times
of arrival, Poisson, open loop. A request is good if it is answered whole, with TTFT and TPOT within the promise. Linux
only: cores are given by affinity, which children inherit.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from bench.harness.arguments import add_names, errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import watched
from bench.harness.tables import print_table
from bench.live.mesh import START_S, live_mesh, mesh_command
from bench.live.ports import free_port
from bench.live.servers import MODEL
from bench.peers.vllm_server import KV_GIB, vllm_server
from engines.models.store import prepared_dir
from mesh.errors import UserError
from simulation.capacity import Trial, crossing

GOAL = 0.9
TTFT_MS, TPOT_MS = 1500, 100  # the promise
INPUT_TOKENS, OUTPUT_TOKENS = "32:256", "16:48"  # evenly between
SEEDS_APART = 1000  # prompts of one rate are in nobody's cache at the next
LOAD_S = 600.0  # at most, of one rate
TOPOLOGY = """
[mesh]
name = "contest-{port}"
log_level = "warning"
start_s = {start_s:.0f}
[services.{model}]
model = {folder}
dtype = "{dtype}"
ttft_ms = {ttft_ms}
tpot_ms = {tpot_ms}
[engines.prefill]
role = "prefill"
{engine}
[engines.decode]
role = "multiplex"
{engine}
[gateways.gateway]
port = {port}
[policy]
name = "tropical"
"""


# --- contestants ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """What all are started with. Half of the ``cores`` are for each of two engines; a mesh promises ``ttft_ms``."""

    folder: Path  # of the model
    cores: Sequence[int]
    vllm_python: Path | None
    vllm_env: Mapping[str, str]
    logs: Path
    ttft_ms: int = TTFT_MS


class Running(Protocol):
    """A server that answers."""

    @property
    def url(self) -> str: ...

    def pids(self) -> Sequence[int]:
        """Its processes."""
        ...


@contextmanager
def _mesh(scene: Scene, dtype: str = "float32", *, uses_idle_cores: bool = False) -> Iterator[Running]:
    """A prefill and a multiplexing engine, as in deploy/topology.toml."""
    port = free_port()
    path = scene.logs / f"mesh-{port}.toml"
    engine = f'threads = {len(scene.cores) // 2}\nkv_memory = "{KV_GIB}GiB"'
    if uses_idle_cores:
        engine += f"\nmax_threads = {len(scene.cores)}"
    settings = {"port": port, "dtype": dtype, "ttft_ms": scene.ttft_ms, "tpot_ms": TPOT_MS, "start_s": START_S}
    path.write_text(TOPOLOGY.format(model=MODEL, folder=json.dumps(str(scene.folder)), engine=engine, **settings))
    with live_mesh(path) as mesh:
        yield mesh


def _vllm(scene: Scene) -> AbstractContextManager[Running]:
    """``vllm serve`` with all cores."""
    return vllm_server(scene.vllm_python, scene.folder, scene.cores, scene.vllm_env)


CONTESTANTS: Mapping[str, Callable[[Scene], AbstractContextManager[Running]]] = {
    "mesh-torch": _mesh,
    "mesh-idle-cores": partial(_mesh, uses_idle_cores=True),
    "mesh-int8": partial(_mesh, dtype="int8"),
    "vllm": _vllm,
}


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A contestant at a rate. ``figures`` are those of `mesh bench`. Cores: what it used, and what others did."""

    contestant: str
    rate: float
    figures: Mapping[str, Any]
    cores: float
    others: float

    @property
    def attainment(self) -> float:
        return float(self.figures["slo_attainment"])


def load(options: argparse.Namespace, scene: Scene, url: str, index: int, rate: float) -> dict[str, Any]:
    """Return the figures of `mesh bench` at a rate. Raise `UserError` if it fails."""
    out = scene.logs / "figures.json"
    words = ["--url", url, "--model", MODEL, "--tokenizer", str(scene.folder), "--prompt-as", "text"]
    words += ["--rate", str(rate), "--requests", str(ceil(rate * options.seconds)), "--seed", str(SEEDS_APART * index)]
    words += ["--input-tokens", options.input_tokens, "--output-tokens", OUTPUT_TOKENS]
    words += ["--goodput", f"ttft:{scene.ttft_ms}", f"tpot:{TPOT_MS}"]
    words += ["--warmup", "2", "--timeout", "120", "--quiet", "--json", str(out)]
    done = mesh_command(os.environ, LOAD_S, "bench", *words)
    if done.returncode:
        raise UserError(f"`mesh bench` at {rate:g}/s: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


def measure(options: argparse.Namespace, scene: Scene, name: str) -> Iterable[Run]:
    """Start a contestant and load it at all rates."""
    _say(f"starting {name}")
    with CONTESTANTS[name](scene) as running:
        for index, rate in enumerate(options.rates):
            with watched(running.pids()) as conditions:
                figures = load(options, scene, running.url, index, rate)
            run = Run(name, rate, figures, conditions.ours, conditions.others)
            for warning in figures["warnings"]:
                _say(f"note: {warning}")
            _say(f"{name} at {rate:g}/s: {run.attainment:.1%} met their promise; {run.others:.2f} cores used by others")
            yield run


def compare(options: argparse.Namespace, scene: Scene) -> list[Run]:
    """Contestants that cannot be started are left out, and said."""
    runs: list[Run] = []
    for name in options.only:
        try:
            runs += measure(options, scene, name)
        except UserError as error:
            _say(f"without {name}: {error}")
    return runs


# --- what comes of it -------------------------------------------------------------------------------------------------

FIGURES = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms", "output_throughput")


def capacities(runs: Sequence[Run]) -> dict[str, str]:
    """Return the rate up to which `GOAL` of the requests are good, by contestant."""
    return {
        name: crossing([Trial(run.rate, run.attainment) for run in group], GOAL).words(GOAL)
        for name, group in groupby(runs, key=lambda run: run.contestant)
    }


def print_all(runs: Sequence[Run], ttft_ms: int) -> None:
    heads = ("rate", "met", "good/s", "TTFT p50", "p99", "TPOT p50", "p99", "tokens/s", "cores", "others'")
    print_table(f"promise: TTFT {ttft_ms} ms, TPOT {TPOT_MS} ms", ("",), heads, map(_cells, runs))
    for name, rate in capacities(runs).items():
        print(f"{name}: {GOAL:.0%} keep the promise up to {rate} requests a second")


def _cells(run: Run) -> list[str]:
    figures = ("-" if run.figures[key] is None else f"{run.figures[key]:.0f}" for key in FIGURES)
    kept = f"{run.attainment:.0%}", f"{run.figures['request_goodput']:.2f}"
    return [run.contestant, f"{run.rate:g}", *kept, *figures, f"{run.cores:.2f}", f"{run.others:.2f}"]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    options = _parse()
    os.sched_setaffinity(0, options.cores)  # the children inherit it
    with tempfile.TemporaryDirectory() as logs, errors_in_a_line():
        more = options.vllm_python, dict(options.vllm_env), Path(logs), options.ttft
        runs = compare(options, Scene(prepared_dir(options.model), options.cores, *more))
    if not runs:
        raise SystemExit(1)
    print_all(runs, options.ttft)
    write_json(options.json, runs)


def _parse() -> argparse.Namespace:
    parser = script_parser("bench.peers.meshes", __doc__, model=True, vllm=True, json=True)
    add_names(parser, "--only", CONTESTANTS)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 3.0, 4.0], metavar="R")
    parser.add_argument("--input-tokens", default=INPUT_TOKENS, metavar="MIN:MAX", help=f"(default: {INPUT_TOKENS})")
    parser.add_argument("--ttft", type=int, default=TTFT_MS, metavar="MS", help="the promise (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of arrivals at each rate")
    parser.add_argument("--cores", type=int, nargs="+", default=sorted(os.sched_getaffinity(0))[:2], metavar="N")
    options = parser.parse_args()
    if len(options.cores) % 2:
        parser.error(f"--cores: {len(options.cores)} cannot be halved; name an even number of cores")
    return options


if __name__ == "__main__":
    main()
