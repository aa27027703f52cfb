"""KV tiers on a live mesh: prefixes come back from the host's memory, whichever of its engines computed them."""

import signal
from os import kill

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
name = "round_robin"
[kv_tiers]
host = "1MiB"
host_folder = "{folder}/host"
disk = "4MiB"
disk_folder = "{folder}/disk"
"""
BLOCKS = 40  # of 16 tokens, of an engine
NUM_SESSIONS = 7  # of 200 tokens: more than the pools hold, and the next turn of each is the other engine's


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folder = tmp_path_factory.mktemp("tiers")
    path = folder / "small.toml"
    memory = {"kv_bytes_per_token": 64, "kv_memory_bytes": 64 * 16 * BLOCKS}
    costs = {"prefill": PrefillCost(0.01, 2e-3), "decode": DecodeCost(0.001, 1e-4)}
    path.write_text(ProfileFile(name="small", source="the test", **memory, **costs).text())
    names = {"model": write_tiny_model(folder / "tiny"), "profile": path, "folder": folder}
    text = TOPOLOGY
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", str(value))
    return start_mesh(text)


def ask(mesh: Mesh, prompt: str) -> tuple[str, int]:
    """The answer, and how many tokens of the prompt were not computed."""
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt, 16, temperature=0), timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]["prompt_tokens_details"]
    return str(answer.json()["choices"][0]["text"]), int(usage["cached_tokens"])


def tier(mesh: Mesh, name: str, tier: str = "host") -> dict[str, int]:
    return engine(mesh, name)["tiers"][tier]  # type: ignore[index, no-any-return]


def test_sessions_beyond_the_pools_go_on_where_they_were(mesh: Mesh):
    prompts = [f"session {number} " * 20 for number in range(NUM_SESSIONS)]
    first = [ask(mesh, prompt)[0] for prompt in prompts]
    again = [ask(mesh, prompt) for prompt in prompts]
    assert [text for text, _ in again] == first
    assert sum(cached for _, cached in again) > 0
    until(lambda: sum(tier(mesh, name)["loaded_blocks"] for name in ("worker-0", "worker-1")) > 0)
    assert sum(tier(mesh, name, "disk")["stored_blocks"] for name in ("worker-0", "worker-1")) > 0
    assert all(tier(mesh, name)["faults"] == 0 for name in ("worker-0", "worker-1"))


def test_an_engine_that_starts_again_finds_what_its_host_has(mesh: Mesh):
    prompt = "the same beginning " * 12
    text, _ = ask(mesh, prompt)
    until(lambda: all(tier(mesh, name)["stored_blocks"] > 0 for name in ("worker-0", "worker-1")))
    before = [int(str(engine(mesh, name)["pid"])) for name in ("worker-0", "worker-1")]
    for pid in before:
        kill(pid, signal.SIGKILL)
    until(
        lambda: all(
            engine(mesh, name)["state"] == "ready" and engine(mesh, name)["pid"] not in before
            for name in ("worker-0", "worker-1")
        )
    )
    assert ask(mesh, prompt) == (text, pytest.approx(208, abs=40))
