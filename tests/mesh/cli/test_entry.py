import argparse
import sys
from importlib.metadata import EntryPoint
from io import BytesIO, TextIOWrapper

import pytest

from mesh.cli import entry as cli
from mesh.cli.arguments import choose_host
from mesh.errors import UserError
from mesh.topology.parse import load


@pytest.fixture
def plug_in(monkeypatch):
    def plug_in(name, value):
        monkeypatch.setattr(cli, "_others", lambda: [EntryPoint(name, value, cli.ENTRY_POINTS)])

    return plug_in


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subparsers.add_parser("extra").set_defaults(run=lambda options: 7)


def test_commands_of_upper_floors_are_found(plug_in, monkeypatch):
    monkeypatch.setattr("mesh.cli.arguments.register_extra", register, raising=False)
    plug_in("extra", "mesh.cli.arguments:register_extra")
    assert cli.main(["extra"]) == 7


def test_what_is_not_asked_for_is_not_loaded(monkeypatch):
    entries = [EntryPoint("extra", "mesh.cli.arguments:register_extra", cli.ENTRY_POINTS)]
    entries.append(EntryPoint("absent", "no_such_package:register", cli.ENTRY_POINTS))
    monkeypatch.setattr(cli, "_others", lambda: entries)
    monkeypatch.setattr("mesh.cli.arguments.register_extra", register, raising=False)
    assert "absent" not in cli.command_parser(["extra"]).format_help()
    assert "absent" in cli.command_parser(["--help"]).format_help()


def test_a_command_that_cannot_be_loaded_says_so(plug_in, capsys):
    plug_in("extra", "no_such_package:register")
    assert cli.main(["extra"]) == 2
    assert capsys.readouterr().err == "mesh extra: cannot be loaded: No module named 'no_such_package'\n"


def test_hosts(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "m"\n[engines.e]\n')
    assert choose_host(load(path), None) == "local"
    with pytest.raises(UserError, match="has no host 'x'; say which one this is with --host local"):
        choose_host(load(path), "x")
    path.write_text(
        '[mesh]\ncurve_key = "k"\n[hosts.a]\naddress = "10.0.0.1"\n[hosts.b]\naddress = "10.0.0.2"\n'
        '[services.s]\nmodel = "m"\n[engines.e]\nhost = "a"\n[gateways.g]\nhost = "b"\n'
    )
    assert choose_host(load(path), "b") == "b"
    with pytest.raises(UserError, match=r"has several hosts; say which one this is with --host a\|b"):
        choose_host(load(path), None)


def test_letters_that_the_terminal_does_not_know_cost_a_question_mark(monkeypatch):
    stream = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr(cli, "command_parser", lambda arguments: Speaking())
    assert cli.main([]) == 0
    stream.seek(0)
    assert stream.read() == "up ? and s?.toml"


class Speaking:
    """A parser whose command writes what no terminal of 7 bits can show, and a name that is no text."""

    def parse_args(self, arguments):
        return argparse.Namespace(run=lambda options: sys.stdout.write("up \u25b2 and s\udcff.toml") and 0)


def test_an_interrupted_command_ends_with_one_line(monkeypatch, capsys):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mesh.cli.first_steps.doctor.run", interrupt)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
