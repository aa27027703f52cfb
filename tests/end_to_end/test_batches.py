"""A batch of a real mesh is answered once and exactly, though an engine and its gateway are killed under it."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, simulated_mesh, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

NUM_LINES, NUM_TOKENS = 30, 120
BATCHES = '[batches]\nfolder = "batches"\n[policy]\nname = "elastic"\n'


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(BATCHES + simulated_mesh().replace("{model}", str(model)))


def asked(number: int) -> dict[str, object]:
    return {"model": "tiny", "prompt": "Once upon", "max_tokens": NUM_TOKENS, "ignore_eos": True, "seed": number}


def text_of(body: dict[str, object]) -> str:
    return str(body["choices"][0]["text"])  # type: ignore[index]


def complete(mesh: Mesh, numbers: range) -> list[str]:
    """The answers that they get by themselves, side by side."""

    def answer(number: int) -> str:
        return text_of(httpx.post(f"{mesh.url}/v1/completions", json=asked(number), timeout=DEADLINE_S).json())

    with ThreadPoolExecutor(len(numbers)) as clients:
        return list(clients.map(answer, numbers))


def num_answered(mesh: Mesh) -> int:
    """Of the newest batch; none while its gateway is away."""
    try:
        [newest, *_] = httpx.get(f"{mesh.url}/v1/batches", timeout=DEADLINE_S).json()["data"] or [{}]
    except httpx.TransportError:
        return 0
    return int(newest["request_counts"]["completed"]) if newest else 0


def kill(mesh: Mesh, kind: str, name: str) -> None:
    pid = next(int(str(row["pid"])) for row in mesh.status()[kind] if row["id"] == name)
    os.kill(pid, signal.SIGKILL)


def test_each_line_is_answered_once_whatever_dies(mesh: Mesh, tmp_path: Path):
    lines, answers = tmp_path / "lines.jsonl", tmp_path / "answers.jsonl"
    rows = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": asked(number)}
        for number in range(NUM_LINES)
    ]
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    expected = complete(mesh, range(2))
    with ThreadPoolExecutor(1) as clients:
        command = "batch", str(lines), "-o", str(answers), "--url", mesh.url
        running = clients.submit(lambda: mesh.run(*command, timeout_s=2 * DEADLINE_S))
        until(lambda: num_answered(mesh) > 0)
        kill(mesh, "engines", "decode-0")
        kill(mesh, "gateways", "gateway")
        ended: subprocess.CompletedProcess[str] = running.result()
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [row["custom_id"] for row in found] == [str(number) for number in range(NUM_LINES)]
    texts = [text_of(row["response"]["body"]) for row in found]
    assert texts[:2] == expected
    assert texts[2:] == complete(mesh, range(2, NUM_LINES))
