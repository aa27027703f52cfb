"""A promise that no engine can keep is told: of costs alone, and by the engine that is to keep it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engines.admission.promises import never_kept
from engines.costs.step_cost import StepCost
from engines.loading import load as load_engine
from kvtransfer.peer_memories import PeerMemories
from mesh.topology.parse import load
from mesh.topology.schema import Slo
from mesh.wire.status import DecodeCost, PrefillCost
from tests.models.tiny_llama import write_tiny_model

FAST, SLOW = (StepCost(PrefillCost(at_s, 0.0), DecodeCost(at_s, 0.0)) for at_s in (0.01, 0.1))
TOPOLOGY = """
[services.tiny]
model = "{model}"
ttft_ms = {ttft_ms}
[engines.engine]
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""


def test_the_fastest_engine_decides():
    assert never_kept(Slo(0.05, 0.05), [SLOW, FAST]) == []
    assert [one.key for one in never_kept(Slo(0.05, 0.2), [SLOW])] == ["ttft_ms"]
    [broken] = never_kept(Slo(0.2, 0.05), [SLOW])
    assert str(broken) == "tpot_ms: 50 can never be met: one token takes 100.0 ms at least; use more than that"


@pytest.mark.parametrize(("ttft_ms", "num_lines"), [(1, 1), (1000, 0)])
def test_an_engine_says_what_it_cannot_keep_when_it_gets_a_service(tmp_path: Path, ttft_ms: int, num_lines: int):
    file = tmp_path / "topology.toml"
    file.write_text(TOPOLOGY.format(model=write_tiny_model(tmp_path / "model"), ttft_ms=ttft_ms))
    topology = load(file)
    with capture_logs() as entries:
        load_engine(topology, topology.engines[0], PeerMemories())
    lines = [one["event"] for one in entries if one["log_level"] == "warning"]
    assert len(lines) == num_lines
    assert all(line.startswith("services.tiny.ttft_ms: 1 can never be met: one token takes ") for line in lines)
