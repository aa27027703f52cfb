"""Files that ``mesh simulate`` reads."""

import pytest

from tests.simulation.command.commands import LENGTHS, TOPOLOGY


@pytest.fixture
def files(tmp_path):
    topology, lengths = tmp_path / "mesh.toml", tmp_path / "lengths.csv"
    topology.write_text(TOPOLOGY)
    lengths.write_text(LENGTHS)
    return str(topology), str(lengths)
