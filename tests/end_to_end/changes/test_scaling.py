"""A live mesh that grows with its load and shrinks after it, while nobody who asks for anything notices."""

from pathlib import Path

import pytest

from mesh.wire.status import DecodeCost
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.load import Load
from tests.end_to_end.tiny import GATEWAY, until, write_slow_profile
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

NUM_TOKENS = 40
TOPOLOGY = f"""
[services.tiny]
model = "{{model}}"
ttft_ms = 5000
tpot_ms = 100
[engines.engine]
count = 3
standby = 2
backend = "simulated"
profile = "{{profile}}"
[placement]
mode = "off"
[scaling]
down_after_s = 4
{GATEWAY}
"""


def states(mesh: Mesh) -> list[object]:
    return sorted(str(row["state"]) for row in mesh.status()["engines"])


def pool(mesh: Mesh) -> dict[str, object]:
    (found,) = mesh.status()["placement"]["pools"]  # type: ignore[call-overload]
    return found  # type: ignore[no-any-return]


def test_engines_start_when_they_are_needed_and_end_when_they_are_not(start_mesh: StartMesh, tmp_path: Path):
    """An engine holds eight requests at 100 ms a token, and 1.9 requests a second make 7.6 at a time."""
    profile = write_slow_profile(tmp_path, DecodeCost(fixed_s=0.02, per_request_s=0.01))
    text = TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path / "model")))
    mesh = start_mesh(text.replace("{profile}", str(profile)))
    assert states(mesh) == ["ready", "standby", "standby"]
    with Load(mesh, {"tiny": 2.8}, NUM_TOKENS) as load:
        until(lambda: states(mesh).count("ready") >= 2)
        load.rates["tiny"] = 0.5
        until(lambda: states(mesh) == ["ready", "standby", "standby"])
        assert (pool(mesh)["num_wanted"], pool(mesh)["problem"]) == (1, "")
    load.check()
    logs = mesh.run("logs", "placement", "--topology", str(mesh.topology)).stdout
    assert "engine-1 starts: engine needs " in logs
    assert " goes on standby: engine needs " in logs
