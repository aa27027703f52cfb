import json
import math
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from mesh.cli.status import _print_table
from mesh.report import report
from mesh.topology.parse import load
from mesh.topology.schema import PlacementSpec
from mesh.wire.control import PolicyChoice, ProcessState, Role
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import (
    ChildStatus,
    DecodeCost,
    EngineStatus,
    FailedLoad,
    GatewayStatus,
    PrefillCost,
    ServiceStatus,
    SupervisorStatus,
)


@pytest.fixture
def topology(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "m"\n[engines.e]\n[gateways.g]\n')
    return load(path)


def supervisor(state, **rest):
    child = ChildStatus("e", "engine", rest.get("pid"), state, rest.get("num_restarts", 0), rest.get("last_exit"))
    return SupervisorStatus(1, "local", 7, [child])


def test_a_process_that_nobody_heard_of_is_unknown(topology):
    (engine,) = report(topology, {})["engines"]
    assert (engine["id"], engine["role"], engine["state"], engine["pid"]) == ("e", "multiplex", "unknown", None)
    assert (engine["services"], engine["free_blocks"], engine["slack_s"]) == ([{"name": "s"}], None, None)


@pytest.mark.parametrize(
    ("state", "shown"),
    [("starting", "starting"), ("restarting", "restarting"), ("stopped", "stopped"), ("running", "silent")],
)
def test_a_process_that_says_nothing_is_as_its_supervisor_sees_it(topology, state, shown):
    status = supervisor(state, pid=9, num_restarts=3, last_exit="exit code 1: boom")
    (engine,) = report(topology, {"supervisor-local": status})["engines"]
    assert (engine["state"], engine["pid"], engine["restarts"]) == (shown, 9, 3)
    assert engine["last_exit"] == "exit code 1: boom"


def test_a_process_speaks_for_itself(topology):
    status = GatewayStatus(1, ProcessState.DRAINING, "local", 5, "http://h:1", 3, 2)
    (gateway,) = report(topology, {"g": status})["gateways"]
    assert (gateway["state"], gateway["url"], gateway["requests"], gateway["waiting"]) == (
        "draining",
        "http://h:1",
        3,
        2,
    )


def test_a_gateway_tells_its_policy(topology):
    choice = PolicyChoice("tropical", {"watermark": 0.5}, 3)
    status = GatewayStatus(1, ProcessState.READY, "local", 5, "http://h:1", 0, 0, choice, 2.0)
    (gateway,) = report(topology, {"g": status})["gateways"]
    assert (gateway["policy"], gateway["policy_parameters"], gateway["policy_version"]) == (
        "tropical",
        {"watermark": 0.5},
        3,
    )
    (unheard,) = report(topology, {})["gateways"]
    assert unheard["policy"] is None


def test_gateways_tell_whose_breakers_are_not_closed(topology):
    status = GatewayStatus(1, ProcessState.READY, "local", 5, "http://h:1", 0, 0, breakers={"e": "open"})
    (engine,) = report(topology, {"g": status})["engines"]
    assert engine["breakers"] == {"g": "open"}
    (engine,) = report(topology, {})["engines"]
    assert engine["breakers"] == {}


def test_an_engine_tells_of_each_service_by_itself(topology):
    costs = PrefillCost(1e-3, 2e-4), DecodeCost(5e-3, 1e-4)
    services = [
        ServiceStatus("a", 10, 4, 16, *costs, num_running=2, freeness=12.0),
        ServiceStatus("b", 20, 20, 16, *costs, freeness=-math.inf),
    ]
    engine = EngineStatus(1, ProcessState.READY, Role.DECODE, "local", 9, services, 2, 0, 0, 0.0, 0.0, 0.0, None)
    (row,) = report(topology, {"e": engine})["engines"]
    a, b = row["services"]
    assert (row["num_blocks"], row["free_blocks"]) == (30, 24)
    assert (a["name"], a["num_blocks"], a["free_blocks"], a["running"], a["freeness"]) == ("a", 10, 4, 2, 12.0)
    assert (b["name"], b["freeness"]) == ("b", None)
    assert a["decode_cost"]["fixed_s"] == 5e-3
    json.dumps(row, allow_nan=False)


def test_the_table_has_a_line_for_each_service(topology, capsys):
    costs = PrefillCost(1e-3, 2e-4), DecodeCost(5e-3, 1e-4)
    services = [ServiceStatus("a", 10, 4, 16, *costs, num_running=2), ServiceStatus("b", 20, 19, 16, *costs)]
    engine = EngineStatus(1, ProcessState.READY, Role.DECODE, "local", 9, services, 2, 5, 0, 0.0, 0.0, 0.0, None)
    _print_table(topology, report(topology, {"e": engine}))
    first, second = [line.split() for line in capsys.readouterr().out.splitlines() if "/10" in line or "/20" in line]
    assert first[:9] == ["e", "decode", "ready", "9", "-", "a", "4/10", "2", "5"]
    assert second == ["b", "19/20", "0"]


def test_the_table_shows_migrations_breakers_and_what_is_wrong(topology, capsys):
    engine = EngineStatus(
        seq=1,
        state=ProcessState.STUCK,
        role=Role.DECODE,
        host="local",
        pid=9,
        services=[],
        num_running=2,
        num_waiting=0,
        num_tokens=0,
        prefill_remaining_s=0.0,
        prefill_waiting_s=0.0,
        decode_step_s=0.0,
        min_slack_s=None,
        num_offloaded=3,
        num_migrating_out=1,
        migrations_total=4,
        migrations_aborted_total=2,
        failed_loads=[FailedLoad("t", "its weights are corrupt", 3), FailedLoad("u", "no such file", 4)],
        error="a step of s has been running for 9 s",
    )
    gateway = GatewayStatus(1, ProcessState.READY, "local", 5, "http://h:1", 0, 0, breakers={"e": "open"})
    _print_table(topology, report(topology, {"e": engine, "g": gateway}))
    shown = capsys.readouterr().out
    (row,) = [line for line in shown.splitlines() if line.split()[:1] == ["e"]]
    assert "stuck" in row
    assert "0, 3 offloaded" in row
    assert "4, +1 now, 2 aborted" in row
    assert "open in g" in row
    assert "e: a step of s has been running for 9 s" in shown
    assert "e: does not serve t: its weights are corrupt" in shown
    assert "e: does not serve u: no such file" in shown


def test_the_placement_daemon_has_a_line_if_there_is_one(topology, capsys):
    assert report(topology, {})["placement"] is None
    status = PlacementStatus(1, ProcessState.READY, "local", 5, "apply", "plan 3: loading", 2, 41.6)
    status = with_fields(status, changes_total=4, error="plan 1 was given up: e is gone; what was loaded stays")
    topology = replace(topology, placement=PlacementSpec())
    silent = report(topology, {})["placement"]
    assert (silent["id"], silent["state"], silent["mode"], silent["plan"]) == ("placement", "unknown", "apply", None)
    told = report(topology, {"placement": status})
    json.dumps(told)
    assert (told["placement"]["doing"], told["placement"]["changes"]) == ("plan 3: loading", 4)
    _print_table(topology, told)
    shown = " ".join(capsys.readouterr().out.split())
    assert "placement ready 5 - apply plan 3: loading 2 - in 42 s" in shown
    assert "placement: plan 1 was given up: e is gone; what was loaded stays" in shown
