"""Slices with continuous batching on a live mesh: requests are offloaded, and their answers are the same as ever."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engines.costs.profiles import ProfileFile
from mesh.wire.status import DecodeCost, PrefillCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, body, engine, is_at_rest, until
from tests.models.tiny_llama import write_tiny_model
from tests.seeds import is_night

pytestmark = pytest.mark.timeout(300)

NUM_REQUESTS = 8
TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 200
tpot_ms = 1000
[engines.worker]
count = 2
{engine}
slice_tokens = 16
offload_memory = "64MiB"
[gateways.gateway]
port = {port}
[policy]
name = "least_loaded"
"""
BLOCKS = 24  # of 8 KiB and 16 tokens, of an engine; an answer of 150 tokens takes 11


@pytest.fixture(scope="module", params=["torch", "simulated"] if is_night() else ["torch"])
def mesh(request: pytest.FixtureRequest, start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    folder = tmp_path_factory.mktemp("model")
    engine = f'kv_memory = "{8 * BLOCKS}KiB"'
    if request.param == "simulated":
        profile = ProfileFile(
            name="small",
            source="the test",
            kv_bytes_per_token=64,
            kv_memory_bytes=64 * 16 * BLOCKS,
            prefill=PrefillCost(0.01, 1e-4),
            decode=DecodeCost(0.005, 1e-3),
        )
        path = folder / "small.toml"
        path.write_text(profile.text())
        engine = f'backend = "simulated"\nprofile = "{path}"'
    model = write_tiny_model(folder / "tiny")
    return start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{engine}", engine))


def ask(mesh: Mesh, number: int) -> str:
    answer = httpx.post(
        f"{mesh.url}/v1/completions", json=body(f"question {number} ", 150, temperature=0), timeout=DEADLINE_S
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def total(mesh: Mesh, kind: str) -> int:
    return sum(int(str(engine(mesh, f"worker-{number}")[kind])) for number in range(2))


def test_offloading_changes_no_token_and_nobody_is_preempted(mesh: Mesh):
    alone = [ask(mesh, number) for number in range(NUM_REQUESTS)]
    for _ in range(20):  # whether somebody is offloaded depends on when others come, and on how late they are by then
        with ThreadPoolExecutor(NUM_REQUESTS) as pool:
            crowded = list(pool.map(lambda number: ask(mesh, number), range(NUM_REQUESTS)))
        assert crowded == alone
        until(lambda: is_at_rest(mesh))
        if total(mesh, "slices_offloaded"):
            break
    assert total(mesh, "slices_kept") > 0
    assert total(mesh, "slices_offloaded") > 0
    assert total(mesh, "offloaded") == 0
    assert total(mesh, "preemptions") == 0
