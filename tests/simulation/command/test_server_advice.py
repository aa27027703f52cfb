"""How many servers a recording takes."""

import argparse
import json

import pytest

from mesh.errors import CommandError, UserError
from simulation.command.advise import register
from tests.simulation.command.test_deployments import profile, recording

__all__ = ["profile", "recording"]


def advise(*arguments):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["advise", *arguments])
    return options.run(options)


def test_more_servers_are_tried_until_the_goal_is_kept(recording, profile, capsys):
    assert advise("--profile", profile, "--trace", recording, "--compare", "least_loaded", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tried"][-1]["attainment"] >= found["goal"] == 0.9
    assert found["fewest"] == {"servers": len(found["tried"]), "policy": "least_loaded"}
    assert len(found["tried"]) > 1


def test_it_is_said_in_a_sentence(recording, profile, capsys):
    assert advise("--profile", profile, "--trace", recording, "--compare", "least_loaded") == 0
    said = capsys.readouterr().out
    assert "with 1 such server and least_loaded it keeps" in said
    assert "fewest that keep 90%:" in said


def test_too_few_servers_are_an_error(recording, profile):
    with pytest.raises(CommandError, match="1 servers do not keep 90%; try --most with more"):
        advise("--profile", profile, "--trace", recording, "--most", "1", "--compare", "least_loaded")


def test_what_is_missing_is_asked_for(profile):
    with pytest.raises(UserError, match="--trace: what are the servers to serve"):
        advise("--profile", profile)
    with pytest.raises(UserError, match="which engines"):
        advise("--ttft", "1", "--tpot", "1")
    with pytest.raises(UserError, match="--ttft and --tpot: what is promised"):
        advise("llama2-13b", "a100", "--input", "1", "--output", "1")
