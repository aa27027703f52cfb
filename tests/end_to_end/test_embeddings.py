"""Embeddings of a real mesh though an engine dies under them; and batches for them, and for a server of others."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from bench.live.ports import free_port
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = """
[services.texts]
model = "{model}"
task = "embed"
ttft_ms = 30000
[services.far]
ttft_ms = 30000
tpot_ms = 1000
[engines.engine]
count = 2
services = ["texts"]
kv_memory = "4MiB"
[engines.server]
backend = "openai"
url = "{server}"
services = { far = "theirs" }
[gateways.gateway]
port = {port}
[batches]
folder = "batches"
"""
TEXTS = [f"the quick brown fox {'jumps over the lazy dog ' * (number % 8)}{number}" for number in range(96)]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One with the OpenAI API that says the same word again and again."""
    port = free_port()
    command = sys.executable, "-m", "bench.load.mock_backend", "--port", str(port), "--model", "theirs"
    process = subprocess.Popen([*command, "--gap-ms", "1"], stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory, server: str) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{server}", server))


def embed(mesh: Mesh, texts: list[str]) -> list[list[float]]:
    body = {"model": "texts", "input": texts}
    response = httpx.post(f"{mesh.url}/v1/embeddings", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return [entry["embedding"] for entry in response.json()["data"]]


def test_an_engine_that_dies_costs_no_vector(mesh: Mesh):
    [expected] = [embed(mesh, TEXTS)]
    pids = [int(str(row["pid"])) for row in mesh.status()["engines"] if row["id"] == "engine-0"]
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(embed, mesh, TEXTS) for _ in range(24)]
        until(lambda: any(answer.done() for answer in answers), 0.005)
        os.kill(pids[0], signal.SIGKILL)
        found = [answer.result() for answer in answers]
    for vectors in found:
        assert len(vectors) == len(expected)
        assert np.allclose(vectors, expected, rtol=0.0, atol=1e-5)


def test_lines_of_batches_go_to_vectors_and_to_servers_of_others(mesh: Mesh, tmp_path: Path):
    rows = [
        *(("/v1/embeddings", {"model": "texts", "input": text}) for text in TEXTS[:8]),
        *(
            ("/v1/chat/completions", {"model": "far", "messages": [{"role": "user", "content": text}], "max_tokens": 4})
            for text in TEXTS[:8]
        ),
    ]
    for kind, some in (("vectors", rows[:8]), ("chats", rows[8:])):
        lines, answers = tmp_path / f"{kind}.jsonl", tmp_path / f"{kind}.out"
        asked = [
            {"custom_id": str(number), "method": "POST", "url": url, "body": body}
            for number, (url, body) in enumerate(some)
        ]
        lines.write_text("".join(f"{json.dumps(row)}\n" for row in asked))
        ended = mesh.run("batch", str(lines), "-o", str(answers), "--url", mesh.url, timeout_s=2 * DEADLINE_S)
        assert ended.returncode == 0, ended.stderr
        found = [json.loads(line) for line in answers.read_text().splitlines()]
        assert [row["custom_id"] for row in found] == [str(number) for number in range(8)]
        bodies = [row["response"]["body"] for row in found]
        if kind == "vectors":
            expected = embed(mesh, TEXTS[:8])
            for body, wanted in zip(bodies, expected, strict=True):
                assert body["data"][0]["embedding"] == pytest.approx(wanted, abs=1e-5)
        else:
            assert {body["choices"][0]["message"]["content"] for body in bodies} == {" a" * 4}
