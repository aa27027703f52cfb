"""Prefixes leave a GPU for the host's memory and come back, and engines pull them from each other."""

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh, start_mesh
from tests.end_to_end.tiny import DEADLINE_S, body, engine, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(240)
__all__ = ["start_mesh"]

TOPOLOGY = """
[services.tiny]
model = "{model}"
dtype = "float32"
ttft_ms = 30000
tpot_ms = 1000
[engines.worker]
count = 2
device = "cuda:0"
kv_memory = "{memory}"
[gateways.gateway]
port = {port}
[policy]
name = "{policy}"
[kv_tiers]
host = "{host}"
host_folder = "{folder}"
peers = {peers}
"""


@pytest.fixture(scope="module")
def with_tiers(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory):
    model = write_tiny_model(tmp_path_factory.mktemp("model"))

    def start(memory: str, policy: str, host: str, peers: str) -> Mesh:
        text, folder = TOPOLOGY, tmp_path_factory.mktemp("tiers")
        names = {"model": model, "memory": memory, "policy": policy, "host": host, "folder": folder, "peers": peers}
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", str(value))
        return start_mesh(text)

    return start


def ask(mesh: Mesh, prompt: str) -> tuple[str, int, str]:
    """The answer, how many tokens of the prompt were not computed, and the answer's id."""
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt, 16, temperature=0), timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    return (
        str(said["choices"][0]["text"]),
        int(said["usage"]["prompt_tokens_details"]["cached_tokens"]),
        str(said["id"]),
    )


def blocks(mesh: Mesh, tier: str, what: str) -> int:
    return sum(int(engine(mesh, name)["tiers"][tier][what]) for name in ("worker-0", "worker-1"))  # type: ignore[index]


def test_prefixes_come_back_from_the_hosts_memory(with_tiers):
    mesh = with_tiers("256KiB", "round_robin", "64MiB", "false")
    prompts = [f"session {number} " * 40 for number in range(9)]
    first = [ask(mesh, prompt)[0] for prompt in prompts]
    until(lambda: blocks(mesh, "host", "stored_blocks") > 0)
    again = [ask(mesh, prompt) for prompt in prompts]
    assert [text for text, _, _ in again] == first
    assert sum(cached for _, cached, _ in again) > 0
    assert blocks(mesh, "host", "loaded_blocks") > 0
    assert blocks(mesh, "host", "faults") == 0


def test_an_engine_pulls_a_prefix_from_another(with_tiers):
    mesh = with_tiers("16MiB", "kv_aware", "64KiB", "true")
    prompt = "the same beginning of many questions " * 20
    text, cached, request = ask(mesh, prompt)
    assert cached == 0
    story = mesh.run("explain", str(mesh.topology), request).stdout
    first, other = ("worker-0", "worker-1") if "sent to worker-0" in story else ("worker-1", "worker-0")
    assert mesh.run("drain", str(mesh.topology), first).returncode == 0
    again, cached, _ = ask(mesh, prompt)
    assert again == text
    if cached:  # else it was sooner to compute it, which a GPU's costs may say of a small model
        until(lambda: int(engine(mesh, other)["tiers"]["peers"]["loaded_blocks"]) > 0)  # type: ignore[index]
