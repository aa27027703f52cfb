"""A few hundred of the nightly runs with faults, and the command that makes them."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from mesh.topology.timing import Timing
from mesh.wire.messages import Codec, Message, encode
from router.requests.token_stream import TokenStream
from simulation.faults.faults import Kill
from simulation.faults.faulty_network import FaultyNetwork
from tests.seeds import seeds
from tests.tools.fault_runs import __main__ as command
from tests.tools.fault_runs.draws import KINDS, ORDERS
from tests.tools.fault_runs.play import GONE_S, MIGRATIONS, SERVICES, bounds_of, play, run_some
from tests.tools.fault_runs.scenario import draw
from tests.tools.fault_runs.story import reduced, tell

EVERYTHING = (*KINDS, *ORDERS)


def test_whatever_goes_wrong_all_that_must_hold_holds():
    """By day too few to meet all that is rare."""
    tally, failures = run_some(EVERYTHING, seeds(24))
    assert failures == []
    told = {row for _, row in tally}
    faults = {"Kill", "Kill of a gateway", "Kill of a placement daemon", "Hang", "Slow", "Partition", "Loss", "Delay"}
    assert told >= faults | {"Duplicate", "Reorder", "Skew", "FailLoad"}
    assert any("lines of batches run" in row for row in told)
    assert told >= {"finished", "cancelled: no longer wanted", "failed: its gateway died", "plan N is carried out"}
    assert all(tally[row] > 0 for row in tally if row[0] in (MIGRATIONS, SERVICES))


def test_engines_swap_services_whatever_goes_wrong():
    """Rare in other runs: of these seeds, engines have room for one service each, and their plans change."""
    tally, failures = run_some(EVERYTHING, [10081, 10329, 10565])
    assert failures == []
    assert any("swapping" in row for _, row in tally)


def test_whatever_processes_say_keeps_the_bounds_of_the_wire(monkeypatch):
    """Else an honest word would be dropped as malformed."""
    codec, said = Codec(Message), set()
    transmit = FaultyNetwork._transmit

    def read_back(network, sender, to, message):
        assert codec.decode(encode(message)) == message
        said.add(type(message).__name__)
        transmit(network, sender, to, message)

    monkeypatch.setattr(FaultyNetwork, "_transmit", read_back)
    _, failures = run_some(EVERYTHING, range(4))
    assert failures == []
    assert {"Submit", "StepTokens", "Reserve", "Commit", "EngineStatus", "GatewayStatus"} <= said


def test_a_seed_says_it_all():
    """Also which kinds are left out changes nothing of the others."""
    assert draw(7) == draw(7) != draw(8)
    kills = [fault for fault in draw(7).faults if isinstance(fault, Kill)]
    assert list(draw(7, ["kill", "gateway"]).faults) == kills
    assert draw(15, ["kill"]).trace == draw(15).trace  # it has no kind that changes requests


def test_engines_of_large_meshes_may_wait_longer_for_gateways_that_nobody_saw_die():
    """For a lease of the engine, and for one of the engine to which a request moves meanwhile."""
    scenario = draw(7)
    small, large = (
        replace(scenario, topology=replace(scenario.topology, timing=Timing.of(number, {}))) for number in (5, 1158)
    )
    assert bounds_of(small).gone_s == GONE_S
    assert bounds_of(large).gone_s - GONE_S == pytest.approx(2 * (large.topology.timing.lease_s - Timing().lease_s))
    assert large.topology.timing.lease_s > GONE_S, "one lease alone is longer than small meshes have in all"


def test_a_run_is_the_same_in_every_process():
    """Names have other hashes in each: no order may hang on them."""
    code = "from tests.tools.fault_runs.play import play; from tests.tools.fault_runs.scenario import draw\n"
    code += "print([play(draw(seed)).tally for seed in range(2)])"
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


def failing(kinds, most=None):
    """A scenario of these kinds with so many requests at most."""
    scenarios = (draw(seed, kinds) for seed in range(100))
    short = (replace(scenario, trace=scenario.trace[:most]) for scenario in scenarios)
    return next(scenario for scenario in short if play(scenario).failure is not None)


def test_a_failure_is_told_with_the_command_that_repeats_it(broken, monkeypatch, capsys):
    seed = failing(["loss"]).seed
    monkeypatch.setattr(command, "_run_all", lambda seeds, only, jobs: run_some(only, seeds))
    monkeypatch.setattr(sys, "argv", ["x", "--seed-from", str(seed), "--runs", "1", "--only", "loss"])
    assert command.main() == 1
    told = capsys.readouterr().out
    assert f"seed {seed} failed at" in told
    assert f"python -m tests.tools.fault_runs --seed {seed} --only loss --verbose" in told


def test_a_failing_run_is_reduced_and_told(broken):
    scenario = failing(["loss", "slow", "drain"], most=6)
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


def test_the_command_prints_tables():
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.fault_runs", "--runs", "2", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "runs with faults" in done.stdout
    assert "finished" in done.stdout


def test_a_run_comes_to_its_end_though_nothing_happens_for_longer_than_a_heartbeat():
    """Its last request has ended, and the one engine that still computes something takes long for it."""
    assert play(draw(6172)).failure is None


def test_a_request_whose_prefix_comes_from_a_tier_stands_in_the_line_of_its_phase():
    """All but its last token is loaded, so it decodes from then on and is not admitted again."""
    assert play(draw(501085)).failure is None


def test_a_pull_that_is_asked_twice_holds_blocks_once():
    assert play(draw(802047)).failure is None


def test_a_service_may_go_while_blocks_of_it_are_loaded():
    assert play(draw(805736)).failure is None


def test_a_service_that_is_gone_has_nobody_who_starves():
    assert play(draw(502796)).failure is None


def test_another_engine_starts_where_the_only_one_that_runs_died_for_long():
    assert draw(2002749).topology.scaling is not None
    assert play(draw(2002749)).failure is None


def test_a_cancel_that_is_lost_is_told_again_to_an_engine_where_another_service_has_its_turn():
    assert play(draw(1012686)).failure is None


def test_the_next_round_of_slices_does_not_wait_for_an_engine_that_lost_its_service():
    assert play(draw(1021651)).failure is None


def test_a_late_copy_of_a_status_takes_no_request_from_an_engine_that_goes_on():
    assert play(draw(3100557)).failure is None


def test_an_engine_that_hangs_is_given_no_request():
    assert play(draw(3104140)).failure is None
