"""Two live engines swap their services through the host's memory: how long it takes, and what streams notice.

    python -m bench.placement.swap [--runs 2] [--model REFERENCE] [--random SHAPE] [--device cpu] [--dtype float32]
        [--prompt-tokens 256] [--kv-memory 256MiB] [--json FILE]

Each engine has weight memory for one model and a half, so neither can load the other's model beside its own. Both
services have the same model. One stream of each service goes on while `mesh plan apply` swaps them, there and back.
``gap``: the longest time between two tokens of a stream, and how many of its median steps that is.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import httpx

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.live.mesh import PATIENT, START_S, LiveMesh, live_mesh, mesh_command
from bench.live.ports import free_port
from bench.models.random_llama import add_random_argument, random_model
from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.torch_engine.weights import loaded_bytes
from mesh.errors import CommandError

TOKENS = range(100, 228)  # that every vocabulary has
PATIENCE_S = 600.0
BEFORE, AFTER = 16, 16  # tokens of each stream around a swap
ENGINE = """
[engines.{name}]
services = ["{service}"]
device = "{device}"
kv_memory = "{kv_memory}"
weight_memory = "{room}B"
staging_memory = "{room}B"
"""
SERVICE = """
[services.{name}]
model = {model}
dtype = "{dtype}"
ttft_ms = 60000
tpot_ms = 1000
"""


@dataclass(frozen=True, slots=True)
class Swap:
    seconds: float  # of the command, from its start to its end
    gaps_ms: list[float]  # the longest of each stream
    step_ms: float  # a median one


class Story(threading.Thread):
    """A stream that goes on until it is told to end."""

    def __init__(self, port: int, service: str, num_tokens: int) -> None:
        super().__init__(daemon=True)
        self._url = f"http://127.0.0.1:{port}/v1/completions"
        prompt = Random(service).choices(TOKENS, k=num_tokens)
        self._body = {"model": service, "prompt": prompt, "max_tokens": 3500, "temperature": 0, "ignore_eos": True}
        self.times: list[float] = []
        self.has_ended, self.problem = threading.Event(), ""

    def run(self) -> None:
        try:
            with httpx.stream("POST", self._url, json=self._body | {"stream": True}, timeout=PATIENCE_S) as response:
                if response.status_code != 200:
                    self.problem = f"{response.status_code}: {response.read().decode()}"
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        self.times.append(time.perf_counter())
                        self.problem = self.problem or (line if '"error"' in line else "")
                    if self.has_ended.is_set():
                        return
        except httpx.HTTPError as error:
            self.problem = repr(error)

    def until(self, count: int) -> None:
        """Wait until so many tokens came. Raise `CommandError` if they do not."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.times) < count:
            if self.problem or not self.is_alive() or time.monotonic() > deadline:
                raise CommandError(f"{self._url}: {self.problem or 'the stream ended early'}")
            time.sleep(0.01)


def topology(options: argparse.Namespace, model: str, port: int) -> tuple[str, str]:
    """Both services on an engine each, and the other way round."""
    folder = prepared_dir(model)
    room = loaded_bytes(folder, ModelConfig.load(folder), options.dtype, options.device) * 3 // 2
    engine = {"device": options.device, "kv_memory": options.kv_memory, "room": room}
    services = "".join(SERVICE.format(name=name, model=json.dumps(model), dtype=options.dtype) for name in ("a", "b"))
    texts = [
        "".join(
            ENGINE.format(name=name, service=service, **engine)
            for name, service in zip(("one", "two"), order, strict=True)
        )
        for order in ("ab", "ba")
    ]
    one, other = (f"{PATIENT}{services}{text}[gateways.gateway]\nport = {port}\n" for text in texts)
    return one, other


def swap(mesh: LiveMesh, target: Path, num_tokens: int) -> Swap:
    stories = [Story(mesh.port, service, num_tokens) for service in ("a", "b")]
    for story in stories:
        story.start()
    for story in stories:
        story.until(BEFORE)
    started = time.perf_counter()
    told = mesh_command(mesh.environment, START_S, "plan", str(mesh.topology.path), "apply", str(target))
    seconds = time.perf_counter() - started
    if told.returncode:
        raise CommandError(f"mesh plan apply: {(told.stdout + told.stderr).strip()}")
    for story in stories:
        story.until(len(story.times) + AFTER)
        story.has_ended.set()
        story.join(PATIENCE_S)
    gaps = [[1e3 * (later - earlier) for earlier, later in pairwise(story.times)] for story in stories]
    return Swap(seconds, [max(one[2:]) for one in gaps], statistics.median(gaps[0] + gaps[1]))


def measure(options: argparse.Namespace, folder: Path) -> list[Swap]:
    model = random_model(options, folder) or options.model
    texts = topology(options, model, free_port())
    paths = [folder / "mesh.toml", folder / "other.toml"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    with live_mesh(paths[0]) as mesh:
        return [swap(mesh, paths[(run + 1) % 2], options.prompt_tokens) for run in range(options.runs)]


def main() -> None:
    parser = script_parser("bench.placement.swap", __doc__, model=True, json=True)
    add_random_argument(parser)
    parser.add_argument("--device", default="cpu", help="of both engines (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="of weights and KV (default: float32)")
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--kv-memory", default="256MiB", help="of each engine (default: 256MiB)")
    parser.add_argument("--runs", type=int, default=2, help="swaps, there and back in turns (default: 2)")
    options = parser.parse_args()
    with errors_in_a_line(), TemporaryDirectory() as name:
        found = measure(options, Path(name))
    print_table("Two engines swap", ("swap",), ("whole, s", "longest gaps, ms", "in steps"), list(_rows(found)))
    write_json(options.json, [asdict(one) for one in found])


def _rows(found: Sequence[Swap]) -> Sequence[tuple[str, ...]]:
    return [
        (
            str(number),
            f"{one.seconds:.1f}",
            ", ".join(f"{gap:.0f}" for gap in one.gaps_ms),
            ", ".join(f"{gap / one.step_ms:.0f}" for gap in one.gaps_ms),
        )
        for number, one in enumerate(found, 1)
    ]


if __name__ == "__main__":
    main()
