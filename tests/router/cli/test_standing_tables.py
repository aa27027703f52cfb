"""What `mesh plan` shows of engines and of what the placement daemon found."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from mesh.topology.schema import EngineSpec, PlacementSpec, Topology
from mesh.wire.control import EnginePlace, ProcessState, Role
from mesh.wire.placement import Decision, Forecast, PlacementStatus, ServiceForecast
from router.cli.standing_tables import print_standing, summary
from tests.router.cluster import M0, make_status

NAMES = ("e0", "e1")
ENGINES = tuple(EngineSpec(name, Role.MULTIPLEX, ("a",)) for name in NAMES)
TOPOLOGY = Topology("t", Path("t.toml"), (), ENGINES, (), placement=PlacementSpec())
HELD = {"e0": make_status(M0, services=["a"]), "e1": make_status(M0, services=["b"])}
FOUND = {name: EnginePlace(4, 2, ("a", "b"), Role.MULTIPLEX) for name in NAMES}
FORECASTS = [
    ServiceForecast("a", 0.25, (700.0, 30.0), (200.0, 10.0), 1.0, 1.0, 1.0),
    ServiceForecast("b", 12.5, (700.0, 30.0), (200.0, 10.0), 0.5, 0.536, 0.98, dispersion=3.6),
    ServiceForecast("c", 0.0, (0.0, 0.0), (0.0, 0.0)),
]
DECISION = Decision(
    7,
    "replace",
    "a better plan was found",
    3,
    60.0,
    4.5,
    FOUND,
    FORECASTS,
    Forecast(0.55, 8.0),
    Forecast(0.57, 7.5),
    Forecast(0.99, 1.2),
    2,
    ["c: its longest requests take 120.0 % of a device's KV memory; ...: 20.0 % of a device's KV memory too little"],
)
STATUS = PlacementStatus(
    7, ProcessState.READY, "local", 44, "shadow", "listening", 3, 47.4, decision=DECISION, decision_age_s=12.0
)


@pytest.fixture(params=[80, 120])
def shown(request, monkeypatch, capsys):
    """In a terminal of that width."""

    def show(daemon, engines=HELD, topology=TOPOLOGY):
        monkeypatch.setenv("COLUMNS", str(request.param))
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        print_standing(topology, engines, daemon)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
        assert max(map(len, lines)) <= request.param
        return "\n".join(line.rstrip() for line in lines)

    return show


def test_what_was_found_and_what_it_was_found_for(shown):
    said = shown(replace(STATUS, made=replace(DECISION, services=FORECASTS[:1])))
    assert "e1      multiplex  b         -             multiplex: a, b" in said
    words = " ".join(said.split())
    assert "b 12.50 700 +- 30 200 +- 10 50.0% 53.6% 98.0% -" in words
    assert "a 0.25 700 +- 30 200 +- 10 100.0% 100.0% 100.0% 0.25/s, 100.0%" in words
    assert "c 0.00 0 +- 0 0 +- 0 - - - -" in words
    assert "achieved 55.0%, 8.00; predicted 57.0%, 7.50; found 99.0%, 1.20" in words
    assert (
        "in bursts (variance of the number of requests in some seconds over its mean; Poisson has 1): b 3.6 attainment"
        in words
    )
    assert "12 s ago: replace: a better plan was found" in words
    assert "20.0 % of a device's KV memory too little" in words
    assert "placement: shadow, changes nothing: `mesh plan apply` does; listening; next decision in 47 s" in words


def test_what_the_engines_hold_already_is_not_told_as_found(shown):
    held = {name: make_status(M0, services=["a", "b"]) for name in NAMES}
    assert "found  " not in shown(STATUS, held).splitlines()[1]


def test_problems_and_silence_are_one_line(shown):
    said = shown(replace(STATUS, error="plan 3 was given up: e1 is gone; what was loaded stays"))
    assert "plan 3 was given up: e1 is gone; what was loaded stays\n" in said
    assert "the placement daemon says nothing; `mesh status` tells whether it runs" in shown(None)
    without = Topology("t", Path("t.toml"), (), ENGINES, ())
    assert shown(None, topology=without).splitlines()[-1] == "no plan was made since the engines started"


def test_programs_get_all_of_it():
    told = json.loads(json.dumps(summary(TOPOLOGY, HELD, STATUS)))
    assert told["engines"][1] == {
        "id": "e1",
        "role": "multiplex",
        "services": ["b"],
        "loading": [],
        "leaving": [],
        "planned": None,
    }
    assert told["daemon"]["decision"]["places"]["e0"]["services"] == ["a", "b"]
    assert summary(TOPOLOGY, {}, None)["daemon"] is None


def test_a_plan_that_is_no_better_is_not_shown(shown):
    kept = replace(DECISION, verdict="keep", reason="no better plan was found")
    said = shown(replace(STATUS, decision=kept))
    assert "found" not in said.splitlines()[1]
    assert "multiplex: a, b" not in said
    assert "multiplex: a, b" in shown(replace(STATUS, decision=replace(DECISION, verdict="not worth it")))
