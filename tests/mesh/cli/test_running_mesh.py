"""Commands about a running mesh mean the one that `mesh serve` started, if nothing else is named or runs."""

from contextlib import ExitStack

import pytest

from mesh.cli.entry import command_parser, main
from mesh.cli.running_mesh import DEFAULT_TOPOLOGY, SERVED, running_topology
from mesh.errors import EXIT_CONFIGURATION, UserError
from mesh.supervisor.lock import acquire


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Let a mesh of that name run, with its own topology or another one."""
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path))
    with ExitStack() as stack:

        def runs(name, topology=None):
            (tmp_path / name).mkdir()
            stack.callback(acquire(tmp_path / name, "local", topology or tmp_path / name / SERVED).release)
            return tmp_path / name / SERVED

        yield runs


def test_the_default_is_meant_where_nothing_runs(runs):
    assert running_topology() == DEFAULT_TOPOLOGY
    assert running_topology("x.toml").name == "x.toml"


def test_the_mesh_of_mesh_serve_is_meant_while_it_runs(runs):
    runs("other", "/somewhere/t.toml")
    served = runs("a")
    assert running_topology() == served
    runs("b")
    with pytest.raises(UserError, match=r"several meshes run; name the topology of one: .*a/served.toml, .*b/served"):
        running_topology()


def test_the_default_is_meant_where_it_runs(runs):
    runs("a")
    runs("topology", DEFAULT_TOPOLOGY.absolute())
    assert running_topology() == DEFAULT_TOPOLOGY


@pytest.mark.parametrize(
    "words", [["top"], ["status"], ["down"], ["logs"], ["tap"], ["services", "list"], ["keys", "list"]]
)
def test_commands_about_a_running_mesh_mean_it(words, runs):
    served = runs("a")
    assert command_parser(words).parse_args(words).file == served


def test_a_profile_is_of_it_unless_somebody_else_is_measured(runs, capsys):
    served = runs("a")
    assert main(["profile"]) == EXIT_CONFIGURATION
    assert capsys.readouterr().err.startswith(f"{served}: no such file")
    runs("b")
    assert command_parser(["profile"]).parse_args(["profile", "--url", "http://here"]).topology is None
