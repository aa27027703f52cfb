"""A mesh on nodes with networks of their own, which Ray holds: what crosses between them, and what faults cost.

By day a chat crosses; nodes are lost and cut off at night.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests import seeds
from tests.end_to_end.conftest import StartMesh
from tests.end_to_end.nodes import trials
from tests.end_to_end.nodes.cluster import CLIENT, HEAD, NodeMesh, mesh_on_nodes
from tests.end_to_end.nodes.frames import payloads
from tests.end_to_end.nodes.network import why_not
from tests.end_to_end.tiny import DEADLINE_S
from tests.models.tiny_llama import write_tiny_model

Record = Callable[[str, object], None]

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(why_not()), reason=why_not())]

SECRET = "The heron stands where the river bends. "
QUESTION = SECRET * 20
KV_BYTES = 512  # of a token: two layers, keys and values of two heads of 16 float32
ENCRYPTED = b"\x07MESSAGE"  # begins each message of CurveZMQ
NUM_DECODES = 2 if seeds.is_night() else 1
HERE = """
[services.tiny]
model = "{model}"
[engines.prefill]
role = "prefill"
kv_memory = "64MiB"
[engines.decode]
role = "multiplex"
kv_memory = "64MiB"
[gateways.gateway]
port = {port}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"), max_context=trials.MAX_CONTEXT)


@pytest.fixture(scope="module")
def mesh(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeMesh]:
    with mesh_on_nodes(tmp_path_factory.mktemp("nodes"), model, NUM_DECODES) as mesh:
        yield mesh
    assert mesh.processes() == []


def chat(url: str) -> httpx.Response:
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return response


def text_of(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.mark.skipif(not seeds.is_night(), reason="it waits for long: at night only")
def test_a_chat_crosses_nodes_encrypted_and_says_what_one_machine_says(
    mesh: NodeMesh, model: Path, start_mesh: StartMesh, tmp_path: Path
):
    mesh.network.record(tmp_path / "frames")
    with mesh.network.nodes[CLIENT].entered():
        answer = chat(mesh.gateway.url)
    mesh.network.record(tmp_path / "later")
    sent = list(payloads(tmp_path / "frames"))

    prefill, decode = (mesh.node_of(answer.headers[f"x-meshserve-{role}"]) for role in ("prefill", "decode"))
    assert prefill is not decode
    outside = {mesh.network.nodes[name].address for name in (HEAD, CLIENT)}
    asked = b"".join(one.data for one in sent if one.source == mesh.network.nodes[CLIENT].address)
    assert SECRET.encode() in asked, "who asks in plain HTTP is seen"
    inside = b"".join(one.data for one in sent if not {one.source, one.target} & outside)
    assert SECRET.encode() not in inside
    blocks = b"".join(one.data for one in sent if (one.source, one.target) == (prefill.address, decode.address))
    assert len(blocks) > len(QUESTION) * KV_BYTES
    assert ENCRYPTED in blocks
    assert len(zlib.compress(blocks)) > 0.99 * len(blocks), "what is encrypted looks like noise"

    assert text_of(answer) == text_of(chat(start_mesh(HERE.replace("{model}", str(model))).url))


@pytest.mark.skipif(not seeds.is_night(), reason="it takes half a minute; it runs at night")
@pytest.mark.parametrize("fault", trials.FAULTS)
def test_a_fault_between_nodes_costs_no_token(mesh: NodeMesh, fault: str, record_testsuite_property: Record):
    """What it costs besides, in seconds, is a property of the run: ``--junitxml`` has it."""
    outcome = trials.try_fault(mesh, fault)
    record_testsuite_property(fault, outcome)
    assert outcome.wrong == []
    assert (outcome.back_s is not None) == (fault in trials.LOSSES)
    names = Counter(process.cmdline()[-1] for process in mesh.processes())
    assert names == Counter(["gateway", "prefill", "decode-0", "decode-1"]), "nobody runs twice or goes on for itself"
