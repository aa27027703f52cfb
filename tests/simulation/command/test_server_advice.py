"""How many servers a recording takes."""

import argparse
import json

import pytest

from mesh.errors import CommandError, UserError
from mesh.topology.schema import Slo
from simulation.command.advise import register
from simulation.command.server_advice import IdleServer
from simulation.loads.trace_request import TraceRequest
from tests.simulation.command.test_deployments import PROFILE, profile, recording

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


@pytest.mark.parametrize(
    ("promised", "problem"),
    [
        (("--tpot", "0.015"), r"TPOT: even an idle one takes 21 ms where 15 ms are promised \(median of 40 requests\)"),
        (("--ttft", "0.05"), r"TTFT: even an idle one takes 60 ms where 50 ms are promised \(median of 40 requests\)"),
    ],
)
def test_what_no_number_of_servers_keeps_is_said_before_any_is_tried(recording, profile, capsys, promised, problem):
    with pytest.raises(CommandError, match=f"no number of such servers keeps 90%: {problem}, and so 0% is the most"):
        advise("--profile", profile, "--trace", recording, *promised)
    assert not capsys.readouterr().out


def test_prompts_that_are_known_and_first_tokens_alone_take_an_idle_server_next_to_nothing():
    first = TraceRequest(0.0, 1024, 30, blocks=(1, 2))
    again = TraceRequest(1.0, 1030, 1, blocks=(1, 2, 3), then=(TraceRequest(2.0, 1040, 1),))
    slos = {"model": Slo(0.05, 0.015)}
    costs = PROFILE.profile()
    assert IdleServer(costs, slos, [again]).share == 0.5, "the first turn has the long prompt"
    assert IdleServer(costs, slos, [first, again]).share == pytest.approx(2 / 3)


def test_what_is_missing_is_asked_for(profile):
    with pytest.raises(UserError, match="--trace: what are the servers to serve"):
        advise("--profile", profile)
    with pytest.raises(UserError, match="which engines"):
        advise("--ttft", "1", "--tpot", "1")
    with pytest.raises(UserError, match="--ttft and --tpot: what is promised"):
        advise("llama2-13b", "a100", "--input", "1", "--output", "1")
