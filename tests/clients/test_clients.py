"""Small real programs with clients that others wrote, against one real mesh: `make clients` runs them."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Mesh, start_mesh  # noqa: F401
from tests.models.tiny_llama import write_tiny_model

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = Path(os.environ.get("CLIENTS_VENV", Path(__file__).parents[2] / ".venv-clients")) / "bin/python"

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PYTHON.exists(), reason="no clients are installed; `make clients` does that"),
]

TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.engine]
kv_memory = "16MiB"
[gateways.gateway]
port = {port}
[responses]
folder = "{folder}"
"""


@pytest.fixture(scope="module")
def mesh(start_mesh, tmp_path_factory) -> Mesh:  # noqa: F811
    model = write_tiny_model(tmp_path_factory.mktemp("model"), max_context=16_384)
    folder = tmp_path_factory.mktemp("responses")
    return start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{folder}", str(folder)))


@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_a_program_of_this_client_runs(mesh, program):
    ran = subprocess.run(
        [str(PYTHON), str(PROGRAMS / f"{program}.py"), mesh.url],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
