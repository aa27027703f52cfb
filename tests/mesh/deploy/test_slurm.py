"""The script for sbatch: equal to the one that is kept, and a shell can read it."""

import subprocess

import pytest

from mesh.errors import UserError
from tests.mesh.deploy.conftest import CHAT, check_golden

TEXT = CHAT.replace('on = "kubernetes"', 'on = "slurm"').replace('labels = { zone = "a" }\n', "")


def test_the_script_is_the_one_that_is_kept(render, tmp_path):
    check_golden("slurm", render("slurm", TEXT), str(tmp_path))


def test_a_shell_can_read_it(render):
    [file] = render("slurm", TEXT).files
    subprocess.run(["bash", "-n"], input=file.text, text=True, check=True)


def test_each_node_has_what_the_largest_host_needs(render):
    [file] = render("slurm", TEXT, time_limit="2:00:00").files
    for option in ("nodes=4", "cpus-per-task=8", "mem=65536M", "gpus-per-node=1", "time=2:00:00", "signal=TERM@140"):
        assert f"#SBATCH --{option}\n" in file.text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CHAT, 'write on = "slurm"'),
        (CHAT.replace('on = "kubernetes"', 'on = "slurm"'), "hosts.worker.labels: nodes of Slurm have features"),
    ],
)
def test_what_no_job_can_hold_is_one_clear_line(render, text, fault):
    with pytest.raises(UserError, match=fault):
        render("slurm", text)
