"""Two engines on one GPU swap their services through the host's memory while both stream."""

from pathlib import Path

import pytest

from engines.models.files.model_config import ModelConfig
from engines.models.store import prepared_dir
from engines.torch_engine.weights import loaded_bytes
from tests.end_to_end.changes.test_load import services
from tests.end_to_end.changes.test_swap import TOPOLOGY, ask, texts
from tests.end_to_end.conftest import Mesh, StartMesh, start_mesh
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(240)
__all__ = ["start_mesh"]


def test_two_engines_swap_their_services_while_both_stream(
    start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
):
    text = TOPOLOGY.replace("weight_memory", 'device = "cuda:0"\nweight_memory')
    for seed, name in enumerate(("left", "right")):
        folder = write_tiny_model(tmp_path_factory.mktemp(name), seed)
        text = text.replace(f"{{{name}}}", str(folder))
        prepared = prepared_dir(str(folder))
    room = loaded_bytes(prepared, ModelConfig.load(prepared), "float32", "cuda:0") * 3 // 2
    text = text.replace("{room}", f"{room // 1024}KiB")
    mesh: Mesh = start_mesh(text.replace("{first}", "left").replace("{second}", "right"))
    undisturbed = texts(ask(mesh))
    new = tmp_path / "new.toml"
    new.write_text(text.replace("{first}", "right").replace("{second}", "left").replace("{port}", "8000"))
    streams = ask(mesh)
    applied = mesh.run("plan", str(mesh.topology), "apply", str(new))
    assert (applied.returncode, applied.stderr) == (0, ""), applied.stdout
    assert applied.stdout.splitlines()[-1] == "plan 1 is carried out"
    assert (services(mesh, "one"), services(mesh, "two")) == (["right"], ["left"])
    assert texts(streams) == undisturbed
