"""Two vLLM engines give their cores to one that splits the model, and take them back, while clients stream."""

import pytest

from tests.end_to_end.conftest import StartMesh
from tests.end_to_end.tiny import Client, body, engine, expected
from tests.engines.contract.computers import FOLDER
from tests.engines.contract.conftest import vllm_python

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
TOPOLOGY = """
[mesh]
start_s = 400
[services.tiny]
model = "{model}"
ttft_ms = 300000
tpot_ms = 5000
[engines.narrow]
count = 2
backend = "vllm"
python = "{python}"
block_size = 32
kv_memory = "16MiB"
options = { enforce_eager = true }
[engines.wide]
spans = ["narrow"]
backend = "vllm"
python = "{python}"
block_size = 32
kv_memory = "16MiB"
threads = 2
options = { enforce_eager = true, tensor_parallel_size = 2 }
[gateways.gateway]
port = {port}
"""
START_S = 400


def test_cores_change_hands_while_clients_stream(start_mesh: StartMesh):
    mesh = start_mesh(TOPOLOGY.replace("{model}", str(FOLDER)).replace("{python}", str(vllm_python())))
    file = str(mesh.topology)

    def states() -> list[str]:
        return [str(engine(mesh, name)["state"]) for name in ("narrow-0", "narrow-1", "wide")]

    def begin(name: str) -> None:
        done = mesh.run("start", file, name, "--timeout", str(START_S), timeout_s=START_S + 20)
        assert (done.returncode, done.stderr) == (0, "")

    def stream(question: str) -> Client:
        """What is interrupted waits for the engine that starts."""
        return Client(mesh.url, body(question), patience_s=START_S).begin()

    questions = [f"question {number}" for number in range(2)]
    streams = [stream(question) for question in questions]
    begin("wide")
    assert states() == ["standby", "standby", "ready"]
    streams += [stream(question) for question in questions]
    begin("narrow-0")
    assert states() == ["ready", "standby", "standby"]
    assert [client.end() for client in streams] == 2 * expected(mesh, *questions)
