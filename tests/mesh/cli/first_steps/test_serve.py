"""``mesh serve`` makes a topology in the runtime folder, and refuses in one line what it cannot serve."""

import os
import socket

import pytest

from mesh.cli.entry import main
from mesh.cli.first_steps.draft import name_of
from mesh.supervisor.lock import acquire
from mesh.topology.parse import load
from tests.end_to_end.conftest import free_port


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The files with which `mesh up` was started."""
    files = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("mesh.cli.up.run", lambda options: files.append(options.file) or 0)
    return files


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("hf:Qwen/Qwen3-0.6B", "Qwen3-0.6B"),
        ("hf:org/name@v1", "name"),
        ("/models/My Model.Q4_1.GGUF", "My-Model.Q4_1"),
        ("/models/llama/", "llama"),
        ("/", "model"),
    ],
)
def test_services_are_called_like_their_models(reference, name):
    assert name_of(reference) == name


def test_a_model_is_served_by_a_topology_in_the_runtime_folder(started, tmp_path):
    port = free_port()
    assert main(["serve", "hf:org/name", "--port", str(port), "--engines", "1", "--ttft", "700"]) == 0
    assert started == [tmp_path / "run/name/served.toml"]
    topology = load(started[0])
    assert (topology.name, topology.services[0].slo.ttft_s, topology.gateways[0].port) == ("name", 0.7, port)


def test_a_mesh_that_runs_is_left_alone(started, tmp_path, capsys):
    assert main(["serve", "hf:org/name", "--port", str(free_port())]) == 0
    held = acquire(tmp_path / "run/name", "local", started[0])
    try:
        assert main(["serve", "hf:org/name", "--port", str(free_port())]) == 2
        assert "already running; stop it with `mesh down`, or use another --name" in capsys.readouterr().err
        assert main(["status"]) == 1  # means it, and hears nothing
    finally:
        held.release()
    assert len(started) == 1


def test_a_port_that_is_taken_is_one_line(started, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", "hf:org/name", "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"127.0.0.1:{port} is taken by process {os.getpid()}" in told
    assert told.endswith("; choose another with --port or --address\n")


def test_a_model_that_is_not_there_is_one_line(started, capsys):
    assert main(["serve", "./missing"]) == 2
    assert capsys.readouterr().err == "model './missing' is no file or folder here\n"
