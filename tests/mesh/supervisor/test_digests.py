from dataclasses import replace

import pytest

from mesh.supervisor.processes.command import child_commands
from mesh.topology.parse import load

TEXT = """
[services.s]
model = "m"
[engines.e]
count = 2
[engines.f]
max_running = 4
[gateways.g]
count = 2
[placement]
"""
ENGINES, GATEWAYS = {"e-0", "e-1", "f"}, {"g-0", "g-1"}
ALL = ENGINES | GATEWAYS | {"placement"}


def digests(path, text):
    path.write_text(text)
    return {command.process: command.digest for command in child_commands(load(path), "local")}


def changed(tmp_path, old, new):
    before, after = digests(tmp_path / "t.toml", TEXT), digests(tmp_path / "t.toml", TEXT.replace(old, new))
    return {name for name in after if before.get(name) != after[name]}


@pytest.mark.parametrize(
    ("old", "new", "which"),
    [
        ("[services.s]", "# a comment\n[services.s]", set()),
        ("max_running = 4", "max_running = 5", {"f", "placement"}),
        ("[gateways.g]", "[gateways.g]\nmax_requests = 7", GATEWAYS | {"placement"}),
        ("[placement]", "[placement]\nworkers = 2", {"placement"}),
        ("[placement]", '[placement]\n[policy]\nname = "round_robin"', GATEWAYS | {"placement"}),
        ("[placement]", "[placement]\n[rescheduling]", ENGINES | {"placement"}),
        ('model = "m"', 'model = "m"\nttft_ms = 1234', ALL),
        ("[placement]", "[placement]\n[mesh]\nlease_ms = 2345", ALL),
        ("[engines.f]", "[engines.new]\n[engines.f]", ALL | {"new"}),
    ],
)
def test_what_a_change_replaces(tmp_path, old, new, which):
    assert changed(tmp_path, old, new) == which


def test_which_engines_start_with_the_mesh_replaces_none(tmp_path):
    assert changed(tmp_path, "count = 2\n[engines.f]", "count = 2\nstandby = 1\n[engines.f]") == {"placement"}


def test_a_file_that_moved_replaces_nothing(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(TEXT)
    topology = load(path)
    moved = replace(topology, path=tmp_path / "elsewhere.toml")
    assert [c.digest for c in child_commands(topology, "local")] == [c.digest for c in child_commands(moved, "local")]


def test_a_profile_with_another_content_replaces_its_engine(tmp_path):
    text = TEXT.replace("max_running = 4", 'backend = "simulated"\nprofile = "p.toml"')
    (tmp_path / "p.toml").write_text("one")
    before = digests(tmp_path / "t.toml", text)
    (tmp_path / "p.toml").write_text("two")
    after = digests(tmp_path / "t.toml", text)
    assert {name for name in after if before[name] != after[name]} == {"f", "placement"}
