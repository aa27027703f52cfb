"""``mesh bench sweep --simulated``: no server is started or asked."""

import argparse
import json

import pytest

from bench.load.cli import register
from mesh.errors import UserError
from tests.simulation.command.test_deployments import profile

__all__ = ["profile"]
FEW = ("--requests", "50", "--trials", "1", "--precision", "0.5", "--input-tokens", "64:128", "--output-tokens", "8:16")


def sweep(*arguments):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["bench", "sweep", "--simulated", *arguments])
    return options.run(options)


def test_servers_of_a_profile(profile, tmp_path, capsys):
    promise = ("--goodput", "ttft:500", "tpot:60")
    assert sweep("--profile", profile, *promise, *FEW, "--out", str(tmp_path / "out")) == 0
    assert "servers: 90% of the requests meet their SLO up to" in capsys.readouterr().out
    [run] = json.loads((tmp_path / "out/sweep.json").read_text())["runs"].values()
    assert run["capacity"] > 0
    assert all(point["p99_ttft_ms"] > 0 for point in run["points"])


def test_a_topology(tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(
        '[services.chat]\nmodel = "."\nttft_ms = 2000\ntpot_ms = 100\n'
        '[engines.engine]\nbackend = "simulated"\nprofile = "a100-llama2-70b-tp4"\n'
    )
    assert sweep("--topology", str(path), *FEW) == 0
    assert "small: 90% of the requests meet their SLO up to" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--model: .*small\.toml has no service 'chatt'; did you mean 'chat'"):
        sweep("--topology", str(path), *FEW, "--model", "chatt")


def test_what_is_missing_is_asked_for(profile):
    with pytest.raises(UserError, match="what is simulated"):
        sweep("--goodput", "ttft:500", "tpot:60")
    with pytest.raises(UserError, match="--goodput: is needed"):
        sweep("--profile", profile, "--goodput", "ttft:500")
    with pytest.raises(UserError, match="--mix: one model is simulated at a time"):
        sweep("--profile", profile, "--goodput", "ttft:500", "tpot:60", "--mix", "a=1,b=2")
