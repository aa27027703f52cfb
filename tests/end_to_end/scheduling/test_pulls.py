"""Engines of a live mesh pull prefixes from each other, and compute what a dead one cannot send."""

import httpx
import pytest

from engines.costs.profiles import ProfileFile
from mesh.wire.status import DecodeCost, PrefillCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, body, engine, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.worker]
count = 2
backend = "simulated"
profile = "{profile}"
[gateways.gateway]
port = {port}
[policy]
name = "kv_aware"
[kv_tiers]
host = "4KiB"
host_folder = "{folder}/host"
peers = true
"""
PROMPT = "the same beginning of many questions " * 20


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folder = tmp_path_factory.mktemp("pulls")
    path = folder / "small.toml"
    costs = {"prefill": PrefillCost(0.01, 2e-3), "decode": DecodeCost(0.001, 1e-4)}
    memory = {"kv_bytes_per_token": 256, "kv_memory_bytes": 256 * 16 * 200}
    path.write_text(ProfileFile(name="small", source="the test", **memory, **costs).text())
    text = TOPOLOGY
    for name, value in {"model": write_tiny_model(folder / "tiny"), "profile": path, "folder": folder}.items():
        text = text.replace(f"{{{name}}}", str(value))
    return start_mesh(text)


def ask(mesh: Mesh) -> tuple[str, int, str]:
    """The answer, how many tokens of the prompt were not computed, and the answer's id."""
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body(PROMPT, 16, temperature=0), timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]["prompt_tokens_details"]
    return str(answer.json()["choices"][0]["text"]), int(usage["cached_tokens"]), str(answer.json()["id"])


def story(mesh: Mesh, request: str) -> str:
    return mesh.run("explain", str(mesh.topology), request).stdout


def test_another_engine_pulls_what_one_that_leaves_has(mesh: Mesh):
    text, cached, request = ask(mesh)
    assert cached == 0
    first, other = ("worker-0", "worker-1") if "sent to worker-0" in story(mesh, request) else ("worker-1", "worker-0")
    assert mesh.run("drain", str(mesh.topology), first).returncode == 0
    again, cached, request = ask(mesh)
    assert again == text
    assert cached >= 512
    until(lambda: engine(mesh, other)["tiers"]["peers"]["loaded_blocks"] == cached // 16)  # type: ignore[index]
    assert f"sent to {other} and stays there, which may pull" in " ".join(story(mesh, request).split())
