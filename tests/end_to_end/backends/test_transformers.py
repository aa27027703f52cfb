"""transformers' `generate` as an engine of a live mesh, beside a torch engine: the same answers, whole and sliced."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, body, engine, is_at_rest, until
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

SLICE = 8
MODELS = "tiny", "other"
TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[services.other]
model = "{other}"
ttft_ms = 30000
tpot_ms = 1000
[engines.ours]
scheduling = "static"
kv_memory = "4MiB"
[engines.theirs]
backend = "transformers"
kv_memory = "4MiB"
[gateways.gateway]
port = {port}
[policy]
name = "round_robin"
"""
REQUESTS: Mapping[str, dict[str, object]] = {
    "greedy": body("one two three", 40, temperature=0),
    "seeded": body("a longer prompt than the others " * 4, 25, temperature=0.8, top_p=0.9),
    "penalised": body("x", 30, temperature=0.7, presence_penalty=1.0, logit_bias={"40": 3.0}),
    "ends": body("anything", 60, temperature=0, ignore_eos=False, logit_bias={"258": 2.0}),
    "stops": body("stop here", 60, temperature=0.6, stop=["e"], logit_bias={"68": 3.0}),  # e
    "logprobs": body("how likely", 10, temperature=0, logprobs=2, echo=True),
}


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    other = write_tiny_model(tmp_path_factory.mktemp("other"), seed=1)
    return start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{other}", str(other)))


def ask(mesh: Mesh, payload: dict[str, object]) -> tuple[str, str, tuple[str, str]]:
    """Which engine began it, its id, and the text that came with the reason of its end."""
    answer = httpx.post(f"{mesh.url}/v1/completions", json=payload, timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    [choice] = said["choices"]
    return answer.headers["x-meshserve-decode"], said["id"], (choice["text"], choice["finish_reason"])


@pytest.mark.parametrize("name", REQUESTS)
def test_both_engines_give_the_same_answer(mesh: Mesh, name: str):
    (one, _, ours), (other, _, theirs) = (ask(mesh, REQUESTS[name]) for _ in range(2))
    assert {one, other} == {"ours", "theirs"}
    assert ours == theirs
    assert ours[1] == ("stop" if name in ("ends", "stops") else "length")


def test_both_engines_have_both_services_and_share_their_memory(mesh: Mesh):
    asked = [payload | {"model": model} for payload in (REQUESTS["greedy"], REQUESTS["seeded"]) for model in MODELS]
    with ThreadPoolExecutor(2 * len(asked)) as pool:
        answers = [answer for _, _, answer in pool.map(lambda payload: ask(mesh, payload), [*asked, *asked])]
    assert answers[: len(asked)] == answers[len(asked) :]
    assert len(set(answers)) == len(asked), "another model answers otherwise"


def test_slices_go_from_one_engine_to_the_other_and_change_no_token(mesh: Mesh):
    whole = [ask(mesh, request)[2] for request in REQUESTS.values()]
    switched = mesh.run("policy", str(mesh.topology), "slices", f"slice_tokens={SLICE}", "interval_s=0.1")
    assert (switched.returncode, switched.stderr) == (0, "")
    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        sliced = list(pool.map(lambda request: ask(mesh, request), REQUESTS.values()))
    assert [answer for _, _, answer in sliced] == whole
    stories = [httpx.get(f"{mesh.admin_url}/mesh/requests/{request}").text for _, request, _ in sliced]
    assert any('"ours"' in story and '"theirs"' in story for story in stories), stories


def test_a_client_that_leaves_frees_its_row(mesh: Mesh):
    client = Client(mesh.url, body("endless", 1500))
    client.begin().leave()
    until(lambda: is_at_rest(mesh))
    assert engine(mesh, "theirs")["state"] == "ready"
