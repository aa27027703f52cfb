"""Two engines whose memory holds one model each swap their services while they stream, and no token is lost."""

from pathlib import Path

import pytest

from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.torch_engine.weights import loaded_bytes
from tests.end_to_end.changes.test_load import services
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import Client, body, engine
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

NUM_TOKENS = 900  # two seconds of them
TOPOLOGY = """
[services.left]
model = "{left}"
dtype = "float32"
ttft_ms = 30000  # so long a request waits for an engine that serves it
[services.right]
model = "{right}"
dtype = "float32"
ttft_ms = 30000
[engines.one]
services = ["{first}"]
kv_memory = "8MiB"
weight_memory = "{room}"
staging_memory = "64MiB"
[engines.two]
services = ["{second}"]
kv_memory = "8MiB"
weight_memory = "{room}"
staging_memory = "64MiB"
[gateways.gateway]
port = {port}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the topology. Each engine has room for a model and a half."""
    folders = {
        name: write_tiny_model(tmp_path_factory.mktemp(name), seed) for seed, name in enumerate(("left", "right"))
    }
    folder = prepared_dir(str(folders["left"]))
    room = loaded_bytes(folder, ModelConfig.load(folder), "float32", "cpu") * 3 // 2
    text = TOPOLOGY.replace("{room}", f"{room // 1024}KiB")
    return text.replace("{left}", str(folders["left"])).replace("{right}", str(folders["right"]))


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, text: str) -> Mesh:
    return start_mesh(text.replace("{first}", "left").replace("{second}", "right"))


def ask(mesh: Mesh, num_tokens: int = NUM_TOKENS) -> dict[str, Client]:
    """A story of each service, at the same time."""
    asked = {name: {**body("a long story", num_tokens), "model": name} for name in ("left", "right")}
    return {name: Client(mesh.url, one).begin() for name, one in asked.items()}


def texts(streams: dict[str, Client]) -> dict[str, str]:
    return {name: stream.end() for name, stream in streams.items()}


def test_two_engines_swap_their_services_while_both_stream(mesh: Mesh, text: str, tmp_path: Path):
    undisturbed = texts(ask(mesh))
    new = tmp_path / "new.toml"
    new.write_text(text.replace("{first}", "right").replace("{second}", "left").replace("{port}", "8000"))
    streams = ask(mesh)
    applied = mesh.run("plan", str(mesh.topology), "apply", str(new))
    num_going_on = sum(stream.is_alive() for stream in streams.values())  # both, unless the machine is busy
    assert (applied.returncode, applied.stderr) == (0, ""), applied.stdout
    lines = applied.stdout.splitlines()
    assert "one: reading right into its host's memory" in lines
    assert "two: reading left into its host's memory" in lines
    assert lines[-1] == "plan 1 is carried out"
    assert (services(mesh, "one"), services(mesh, "two")) == (["right"], ["left"])
    assert texts(streams) == undisturbed
    assert sum(int(str(engine(mesh, name)["migrations"])) for name in ("one", "two")) >= num_going_on
    assert all(undisturbed[name].startswith(said) for name, said in texts(ask(mesh, 20)).items())
