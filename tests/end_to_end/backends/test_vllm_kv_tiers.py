"""KV tiers under a real vLLM engine: one that died and started again finds what its host has."""

import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.conftest import StartMesh
from tests.end_to_end.tiny import DEADLINE_S, engine, until
from tests.engines.contract.computers import FOLDER
from tests.engines.contract.conftest import vllm_python

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
BLOCK_SIZE = 32
NAME_DIGITS = 32  # of a block's file
TOPOLOGY = """
[mesh]
start_s = 400
[services.chat]
model = "{model}"
ttft_ms = 60000
tpot_ms = 5000
[engines.only]
backend = "vllm"
python = "{python}"
block_size = 32
kv_memory = "16MiB"
options = { enforce_eager = true }
[gateways.gateway]
port = {port}
[kv_tiers]
host = "64MiB"
host_folder = "{folder}"
"""
BODY = {"model": "chat", "prompt": "The same words again. " * 20, "max_tokens": 12, "temperature": 0}


def test_an_engine_that_died_takes_its_blocks_from_the_host(start_mesh: StartMesh, tmp_path: Path):
    text = TOPOLOGY.replace("{model}", str(FOLDER)).replace("{python}", str(vllm_python()))
    mesh = start_mesh(text.replace("{folder}", str(tmp_path / "host")))

    def ask() -> tuple[str, int, int]:
        answer = httpx.post(f"{mesh.url}/v1/completions", json=BODY, timeout=DEADLINE_S).json()
        usage = answer["usage"]
        return answer["choices"][0]["text"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    text, num_prompt, num_cached = ask()
    assert num_cached == 0
    num_blocks = (num_prompt - 1) // BLOCK_SIZE
    until(lambda: sum(len(path.name) == NAME_DIGITS for path in (tmp_path / "host").rglob("*")) >= num_blocks)
    died = engine(mesh, "only")["pid"]
    os.kill(int(str(died)), signal.SIGKILL)
    until(lambda: engine(mesh, "only").get("state") == "ready" and engine(mesh, "only")["pid"] != died)
    assert ask() == (text, num_prompt, num_blocks * BLOCK_SIZE)
