"""Slices on a live mesh: answers come slice by slice from static batches of torch engines, and are the same as ever."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, body, engine, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

SLICE, NUM_REQUESTS = 16, 8
TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.worker]
count = 2
scheduling = "static"
kv_memory = "16MiB"
[gateways.gateway]
port = {port}
[policy]
name = "slices"
slice_tokens = 16
interval_s = 0.2
"""


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(TOPOLOGY.replace("{model}", str(model)))


def answers(mesh: Mesh) -> list[tuple[str, int, str]]:
    """Text, tokens and id of each."""

    def ask(number: int) -> tuple[str, int, str]:
        prompt, num_tokens = f"question {number} " * (1 + number), 10 * (1 + number)
        answer = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt, num_tokens), timeout=DEADLINE_S)
        assert answer.status_code == 200, answer.text
        said = answer.json()
        return said["choices"][0]["text"], said["usage"]["completion_tokens"], said["id"]

    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        return list(pool.map(ask, range(NUM_REQUESTS)))


def test_slices_change_no_token(mesh: Mesh):
    sliced = answers(mesh)
    assert [num_tokens for _, num_tokens, _ in sliced] == [10 * (1 + number) for number in range(NUM_REQUESTS)]
    switched = mesh.run("policy", str(mesh.topology), "least_loaded")
    assert (switched.returncode, switched.stderr) == (0, "")
    whole = answers(mesh)
    assert [text for text, _, _ in sliced] == [text for text, _, _ in whole]
    back = mesh.run("policy", str(mesh.topology), "slices", f"slice_tokens={SLICE}", "interval_s=0.2")
    assert (back.returncode, back.stderr) == (0, "")


def test_each_slice_is_explained(mesh: Mesh):
    *_, (_, num_tokens, longest) = answers(mesh)
    story = mesh.run("explain", str(mesh.topology), longest)
    assert story.returncode == 0, story.stderr
    assert story.stdout.count("accepted it") == -(-num_tokens // SLICE), story.stdout


def test_engines_hold_nothing_afterwards(mesh: Mesh):
    answers(mesh)
    for name in ("worker-0", "worker-1"):
        until(lambda name=name: engine(mesh, name)["running"] == engine(mesh, name)["waiting"] == 0)
