"""What engines say of a topology before anything starts."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from engines.checks import check
from mesh.errors import UserError
from mesh.topology.further import CHECKS
from mesh.topology.parse import load
from mesh.topology.schema import Topology

SERVICE = '[services.tiny]\nmodel = "pypi:a==1/b.gguf"\n'
KNOWN = 'backend = "simulated"\nprofile = "h100-llama2-70b-tp4"\n'


def topology(folder: Path, *engines: str, service: str = "") -> Topology:
    tables = [f"[engines.e{number}]\n{engine}\n" for number, engine in enumerate(engines)]
    (folder / "t.toml").write_text("".join([SERVICE, service, "\n", *tables]))
    return load(folder / "t.toml")


def test_it_is_among_the_checks_of_the_command():
    assert check in [entry.load() for entry in entry_points(group=CHECKS)]


@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        (
            'backend = "simulated"',
            r't\.toml: engines\.e1: backend = "simulated" needs a profile, such as profile = "h100',
        ),
        ('profile = "h100-lama2-70b-tp4"', r"t\.toml: engines\.e1: .*did you mean 'h100-llama2-70b-tp4'\?"),
        ('profile = "none.toml"', r"t\.toml: engines\.e1: profile .*none\.toml: No such file"),
    ],
)
def test_a_profile_that_is_not_there(tmp_path: Path, engine: str, fault: str):
    with pytest.raises(UserError, match=fault):
        check(topology(tmp_path, KNOWN, engine))


def test_promises_that_not_even_an_idle_engine_keeps(tmp_path: Path):
    [remark] = check(topology(tmp_path, KNOWN, service="ttft_ms = 1"))
    assert remark.startswith("services.tiny.ttft_ms: 1 can never be met: one token takes ")


@pytest.mark.parametrize("engines", [(KNOWN,), (KNOWN, ""), ("",)])
def test_nothing_to_remark(tmp_path: Path, engines: tuple[str, ...]):
    """Promises that can be kept, or that engines may keep that nobody has measured."""
    service = "" if engines == (KNOWN,) else "ttft_ms = 1"
    assert check(topology(tmp_path, *engines, service=service)) == []
