"""Units: equal to those that are kept, and right by systemd where it is there."""

import shutil
import subprocess

import pytest

from mesh.errors import UserError
from tests.mesh.deploy.conftest import CHAT, check_golden

MACHINES = """\
[mesh]
curve_key = "mesh.key"
drain_s = 30
[services.chat]
model = "hf:org/chat"
[hosts.left]
address = "10.0.0.1"
[hosts.right]
address = "10.0.0.2"
[gateways.gateway]
host = "left"
[engines.main]
host = "right"
"""


def test_units_are_those_that_are_kept(render):
    check_golden("systemd", render("systemd", MACHINES))


def test_a_unit_stops_no_sooner_than_requests_have_ended(render):
    [unit] = [file.text for file in render("systemd", MACHINES).files if file.path.endswith("right.service")]
    assert "TimeoutStopSec=80\n" in unit
    assert "KillMode=process\n" in unit, "the others go on without a supervisor"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_units_are_right_by_systemd(render, tmp_path):
    command = tmp_path / "mesh"
    command.touch(mode=0o755)
    units = [file for file in render("systemd", MACHINES, command=str(command)).files if file.path.endswith(".service")]
    for unit in units:
        path = tmp_path / unit.path.rpartition("/")[2]
        path.write_text(unit.text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, [line for line in done.stderr.splitlines() if path.name in line]) == (0, [])


def test_hosts_that_a_cluster_places_have_no_unit(render):
    with pytest.raises(UserError, match="cluster: kubernetes says where hosts are"):
        render("systemd", CHAT)
