"""A few hundred of the nightly runs with faults, and the command that makes them."""

import os
import subprocess
import sys
from functools import cache

import pytest

from bench.fault_runs import __main__ as command
from bench.fault_runs.play import Tally, play
from bench.fault_runs.reduce import reduced
from bench.fault_runs.scenario import KINDS, ORDERS, draw
from bench.fault_runs.story import tell
from mesh.wire.messages import Codec, Message, encode
from router.requests.token_stream import TokenStream
from simulation.faults.faults import Kill
from simulation.faults.faulty_network import FaultyNetwork

PART = 25
NUM_RUNS = 200


@cache
def some_runs(first):
    return command.run_some(range(first, first + PART), (*KINDS, *ORDERS))


@pytest.mark.parametrize("first", range(0, NUM_RUNS, PART))
def test_whatever_goes_wrong_all_that_must_hold_holds(first):
    tally, failures = some_runs(first)
    assert failures == []
    assert tally.num_runs == PART


def test_the_runs_of_this_suite_meet_every_kind_of_fault_and_ending():
    tally = Tally()
    for first in range(0, NUM_RUNS, PART):
        tally.add(some_runs(first)[0])
    kinds = {"Kill", "Kill of a gateway", "Kill of a placement daemon", "Hang", "Slow", "Partition", "Loss", "Delay"}
    kinds |= {"Duplicate", "Reorder", "Skew", "FailLoad"}
    assert kinds <= tally.faults.keys()
    assert {"finished", "cancelled: no longer wanted", "failed: its gateway died"} <= tally.endings.keys()
    assert min(tally.migrations.values()) > 0
    assert min(tally.loads.values()) > 0
    assert tally.plans["plan N is carried out"] > 0
    assert tally.plans["goes on with interval N, which began N s ago"] > 0


def test_whatever_processes_say_keeps_the_bounds_of_the_wire(monkeypatch):
    """Else an honest word would be dropped as malformed."""
    codec, said = Codec(Message), set()
    transmit = FaultyNetwork._transmit

    def read_back(network, sender, to, message):
        assert codec.decode(encode(message)) == message
        said.add(type(message).__name__)
        transmit(network, sender, to, message)

    monkeypatch.setattr(FaultyNetwork, "_transmit", read_back)
    _, failures = command.run_some(range(8), (*KINDS, *ORDERS))
    assert failures == []
    assert {"Submit", "StepTokens", "Reserve", "Commit", "EngineStatus", "GatewayStatus"} <= said


def test_a_seed_says_it_all():
    """Also which kinds are left out changes nothing of the others."""
    assert draw(7) == draw(7) != draw(8)
    kills = [fault for fault in draw(7).faults if isinstance(fault, Kill)]
    assert list(draw(7, ["kill", "gateway"]).faults) == kills
    assert draw(7, ["kill"]).trace == draw(7).trace


def test_a_run_is_the_same_in_every_process():
    """Names have other hashes in each: no order may hang on them."""
    code = "from bench.fault_runs.play import play; from bench.fault_runs.scenario import draw\n"
    code += "print([play(draw(seed)).tally for seed in range(6)])"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] != ""


@pytest.fixture
def broken(monkeypatch):
    """Streams deliver what comes after a gap."""
    monkeypatch.setattr(TokenStream, "_hold", lambda self, delta, now: [self._append(delta, delta.finish)])


def failing_seed(kinds):
    return next(seed for seed in range(100) if play(draw(seed, kinds)).failure is not None)


def test_a_failure_is_told_with_the_command_that_repeats_it(broken, monkeypatch, capsys):
    seed = failing_seed(["loss"])
    monkeypatch.setattr(command, "_run_all", lambda seeds, only, jobs: command.run_some(seeds, only))
    monkeypatch.setattr(sys, "argv", ["x", "--seed-from", str(seed), "--runs", "1", "--only", "loss"])
    assert command.main() == 1
    told = capsys.readouterr().out
    assert f"seed {seed} failed at" in told
    assert f"python -m bench.fault_runs --seed {seed} --only loss --verbose" in told


def test_a_failing_run_is_reduced_and_told(broken):
    kinds = ["loss", "slow", "drain"]
    scenario = draw(failing_seed(kinds), kinds)
    small = reduced(scenario)
    assert len(small.trace) < len(scenario.trace)
    assert len(small.faults) == 1
    failure, lines = tell(small)
    assert failure is not None
    assert failure.request is not None
    assert any("Submit" in line for line in lines)
    assert any("lost" in line and "tokens" in line for line in lines)


def test_wrong_options_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", "--only", "earthquake"])
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 2
    assert "no 'earthquake'; there are kill, death" in capsys.readouterr().err


def test_the_command_runs_on_several_cores():
    done = subprocess.run(
        [sys.executable, "-m", "bench.fault_runs", "--runs", "12", "--jobs", "2"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "Runs with faults" in done.stdout
    assert "finished" in done.stdout


def test_a_run_comes_to_its_end_though_nothing_happens_for_longer_than_a_heartbeat():
    """Its last request has ended, and the one engine that still computes something takes long for it."""
    assert play(draw(6172)).failure is None
