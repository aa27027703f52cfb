from pathlib import Path

import pytest
from rich.console import Console

from mesh.cli.live_view import LiveView
from mesh.cli.view import LineView, welcome
from mesh.topology.parse import load
from mesh.wire.status import ChildStatus

FILE = Path("t.toml")


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(
        '[services.tiny]\nmodel = "m"\n[engines.e]\n[gateways.g]\naddress = "0.0.0.0"\nport = 8001\n'
        "[access]\nopen = true\n"
    )
    return load(path)


def child(state, pid=1, restarts=0, last_exit=None):
    return [ChildStatus("e", "engine", pid, state, restarts, last_exit)]


def test_the_welcome_can_be_pasted(topology):
    text = welcome(topology, "local", FILE)
    assert text.startswith("ready: http://127.0.0.1:8001\n")
    assert "curl http://127.0.0.1:8001/v1/chat/completions" in text
    assert '"model": "tiny"' in text
    assert "mesh chat --url http://127.0.0.1:8001" in text
    assert welcome(topology, "elsewhere", FILE) == "ready"


def test_the_welcome_says_how_to_come_in(topology):
    more = '[access]\nkeys = "keys.json"\n[gateways.gateway]\nport = 8001\ntls_cert = "c.pem"\ntls_key = "k.pem"\n'
    text = topology.path.read_text()
    topology.path.write_text(text[: text.index("[gateways")] + more if "[gateways" in text else text + more)
    said = welcome(load(topology.path), "local", FILE)
    assert said.startswith("ready: https://127.0.0.1:8001\n")
    assert "-H 'authorization: Bearer KEY'" in said


def test_the_welcome_names_the_models_if_there_is_a_choice(topology):
    assert "models" not in welcome(topology, "local", FILE)
    topology.path.write_text(topology.path.read_text() + '[services.small]\nmodel = "n"\n')
    assert "\n  models: tiny, small\n" in welcome(load(topology.path), "local", FILE)


def test_each_change_is_one_line(topology, capsys):
    ready = []
    with LineView(topology, "local", FILE, ready.append) as view:
        view.changed(child("starting", pid=None))
        view.changed(child("starting", pid=1))
        view.changed(child("starting", pid=1))
        view.changed(child("running", pid=1))
        capsys_before = capsys.readouterr().out
        view.ready(None)
        capsys.readouterr()
        view.changed(child("restarting", pid=None, last_exit="killed by SIGKILL"))
        view.changed(child("starting", pid=2, restarts=1))
        view.stopping()
        view.stopping()
    assert capsys_before == "e: starting (process 1)\ne: running\n"
    assert ready == [True]
    assert capsys.readouterr().out.splitlines() == [
        "e: died (killed by SIGKILL); starting again",
        "e: starting (process 2)",
        "draining; Ctrl-C again stops at once",
        "stopping at once",
        "stopped",
    ]


def test_a_terminal_that_went_away_does_no_harm(topology, monkeypatch):
    def gone(line):
        raise BrokenPipeError

    monkeypatch.setattr("mesh.cli.view.print_line", gone)
    with LineView(topology, "local", FILE, lambda _: None) as view:
        view.changed(child("running"))
        view.ready(None)


def test_the_live_table_shows_states_and_reasons(topology, capsys):
    with LiveView(LineView(topology, "local", FILE, lambda _: None)) as view:
        view.changed(child("restarting", last_exit="exit code 1: boom"))
        console = Console(width=80)
        with console.capture() as captured:
            console.print(view._render())
        view.changed(child("running", pid=2))
        view.ready(None)
        capsys.readouterr()
        view.changed(child("running", pid=2))
        view.changed(child("restarting", pid=None, last_exit="exit code 1: boom"))
        said = capsys.readouterr().out
    assert "restarting" in captured.get()
    assert "exit code 1: boom" in captured.get()
    assert said == "e: died (exit code 1: boom); starting again\n"


def test_a_mesh_that_is_not_all_as_it_should_be_says_why(topology, capsys):
    ready = []
    with LineView(topology, "local", FILE, ready.append) as view:
        view.ready("e: not replaced: no such model")
        view.left()
    assert ready == [False]
    assert capsys.readouterr().out == "e: not replaced: no such model\nleft to another `mesh up`; the mesh goes on\n"


def test_a_mesh_without_chats_shows_a_call_that_it_answers(tmp_path: Path):
    path = tmp_path / "mesh.toml"
    path.write_text('[services.texts]\nmodel = "m"\ntask = "embed"\n[engines.e]\n')
    said = welcome(load(path), "local", FILE)
    assert "/v1/embeddings" in said
    assert "mesh chat" not in said
    path.write_text(path.read_text() + '[services.talk]\nmodel = "m"\n')
    assert '"model": "talk"' in welcome(load(path), "local", FILE)
