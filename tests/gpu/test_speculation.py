"""Drafts are verified on a GPU: the same answers, of a model that was trained."""

import httpx
import pytest

from bench.live.ports import free_port
from tests.end_to_end.conftest import StartMesh, start_mesh
from tests.end_to_end.tiny import DEADLINE_S
from tests.engines.contract.computers import FOLDER

pytestmark = pytest.mark.timeout(240)
__all__ = ["start_mesh"]

TOPOLOGY = """
[services.bytes]
model = "{model}"
dtype = "float32"
ttft_ms = 30000
tpot_ms = 1000
{speculation}
[engines.worker]
device = "cuda:0"
kv_memory = "32MiB"
metrics_port = {metrics}
[gateways.gateway]
port = {port}
"""
PROMPT = "the cat sat on the mat, the cat sat on the mat, the cat sat on the "


def test_answers_are_those_without_drafts(start_mesh: StartMesh):
    found, metrics = [], free_port()
    text = TOPOLOGY.replace("{model}", str(FOLDER)).replace("{metrics}", str(metrics))
    for line in ("", 'speculation = "prompt_lookup"'):
        mesh = start_mesh(text.replace("{speculation}", line))
        asked = {"model": "bytes", "prompt": PROMPT, "max_tokens": 64, "ignore_eos": True}
        both = [asked | {"temperature": 0}, asked | {"temperature": 0.5, "seed": 3}]
        answers = [httpx.post(f"{mesh.url}/v1/completions", json=one, timeout=DEADLINE_S).json() for one in both]
        found.append([answer["choices"][0]["text"] for answer in answers])
        told = httpx.get(f"http://127.0.0.1:{metrics}/metrics", timeout=DEADLINE_S).text
        assert mesh.run("down", str(mesh.topology)).returncode == 0
    assert found[0] == found[1]
    accepted = [line for line in told.splitlines() if line.startswith("vllm:spec_decode_num_accepted_tokens_total")]
    assert float(accepted[0].split()[-1]) > 0
