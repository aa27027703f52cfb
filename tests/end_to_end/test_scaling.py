"""A live mesh that grows with its load and shrinks after it, while nobody who asks for anything notices."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bench.tiny_model import write_tiny_model
from engines.profiles import ProfileFile
from mesh.messages import DecodeCost, PrefillCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, GATEWAY, until

pytestmark = pytest.mark.timeout(300)

NUM_TOKENS = 40
TOPOLOGY = f"""
[services.tiny]
model = "{{model}}"
ttft_ms = 5000
tpot_ms = 100
[engines.engine]
count = 3
standby = 2
backend = "simulated"
profile = "{{profile}}"
[placement]
mode = "off"
[scaling]
down_after_s = 4
{GATEWAY}
"""


class Load(threading.Thread):
    """``rate`` requests a second, until it is left."""

    def __init__(self, mesh: Mesh, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.answers: list[Future[httpx.Response]] = []
        self._mesh = mesh
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(64)

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._pool.shutdown()

    def run(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(0.05):
            if time.monotonic() >= due:
                due += 1 / self.rate
                self.answers.append(self._pool.submit(self._ask, len(self.answers)))

    def _ask(self, number: int) -> httpx.Response:
        request = {"model": "tiny", "prompt": f"question {number % 4}", "max_tokens": NUM_TOKENS, "ignore_eos": True}
        return httpx.post(f"{self._mesh.url}/v1/completions", json={**request, "seed": 3}, timeout=DEADLINE_S)


def states(mesh: Mesh) -> list[object]:
    return sorted(str(row["state"]) for row in mesh.status()["engines"])


def pool(mesh: Mesh) -> dict[str, object]:
    (found,) = mesh.status()["placement"]["pools"]  # type: ignore[call-overload]
    return found  # type: ignore[no-any-return]


def test_engines_start_when_they_are_needed_and_end_when_they_are_not(start_mesh: StartMesh, tmp_path: Path) -> None:
    """An engine holds eight requests at 100 ms a token, and 1.9 requests a second make 7.6 at a time."""
    profile = ProfileFile(
        name="slow",
        source="made up",
        kv_bytes_per_token=1,
        kv_memory_bytes=32768,
        prefill=PrefillCost(fixed_s=0.01, per_token_s=0.0001),
        decode=DecodeCost(fixed_s=0.02, per_request_s=0.01),
    )
    (tmp_path / "profile.toml").write_text(profile.text())
    text = TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path / "model")))
    mesh = start_mesh(text.replace("{profile}", str(tmp_path / "profile.toml")))
    assert states(mesh) == ["ready", "standby", "standby"]
    with Load(mesh, 2.8) as load:
        until(lambda: states(mesh).count("ready") >= 2, every_s=0.5)
        load.rate = 0.5
        until(lambda: states(mesh) == ["ready", "standby", "standby"], every_s=0.5)
        assert (pool(mesh)["num_wanted"], pool(mesh)["problem"]) == (1, "")
    answers = [future.result() for future in load.answers]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    texts = {(number % 4, answer.json()["choices"][0]["text"]) for number, answer in enumerate(answers)}
    assert len(texts) == 4
    logs = mesh.run("logs", "placement", "--topology", str(mesh.topology)).stdout
    assert "engine-1 starts: engine needs " in logs
    assert " goes on standby: engine needs " in logs
