"""A search for what was heard of a mesh, scored by arithmetic."""

import json
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

from mesh.errors import CommandError, UserError
from mesh.topology.schema import GatewaySpec, PlacementSpec, ServiceSpec, Slo, Topology
from mesh.wire.status import ServiceTally
from router.cli.plan_tables import print_json, print_tables
from router.placement import dry_run as module
from router.placement.dry_run import HeardMesh, dry_run
from router.placement.observe.service_monitor import Observed
from router.placement.search import evaluators
from tests.router.cluster import M0, make_status
from tests.router.placement.worlds import Fluid

NAMES = ("a", "b")
TOPOLOGY = Topology(
    "t", Path("t.toml"), tuple(ServiceSpec(name, "m", Slo(1.0, 0.1)) for name in NAMES), (), (GatewaySpec("g"),)
)


class FluidEvaluators:
    def evaluator(self, catalogue, traffic, slos, conduct):
        return Fluid(traffic)

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _fluid(monkeypatch):
    monkeypatch.setattr(module, "load_evaluators", lambda num_workers: FluidEvaluators())


def tally(name, arrived, late=0):
    return ServiceTally(
        name, arrived, arrived * 10, arrived * 100, arrived, late, arrived, arrived * 5, arrived * 25, 1.0
    )


def heard(held, *tallies):
    engines = {name: replace(make_status(M0, services=services), num_devices=1) for name, services in held.items()}
    return HeardMesh(engines, Observed(10.0, {one.name: one for one in tallies}))


def test_what_it_would_change_and_what_that_brings(capsys):
    """b needs more than one engine; a has two."""
    found = dry_run(
        TOPOLOGY,
        heard({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, tally("a", 20), tally("b", 80, late=30)),
        improve_s=0.3,
        num_workers=1,
    )
    assert found.achieved.services["b"].attainment == pytest.approx(0.625)
    proposal = found.found.proposal
    assert proposal.wanted.attainment > proposal.present.attainment + 0.1
    assert {group.id for group in proposal.plan.groups} == {"e0", "e1", "e2"}
    assert len(proposal.plan.groups_of("b")) > 1
    print_tables(found)
    said = capsys.readouterr().out
    assert "what would change" in said
    assert "replace: a better plan was found" in said
    assert "62.5%" in said
    print_json(found)
    told = json.loads(capsys.readouterr().out)
    assert told["present"]["engines"][2]["services"] == ["b"]
    assert told["traffic"]["services"]["b"]["rate"] == 8.0
    assert told["wanted"]["number"] == 1


def test_a_plan_that_is_good_stays(capsys):
    run = dry_run(
        TOPOLOGY, heard({"e0": ["a"], "e1": ["b"]}, tally("a", 10), tally("b", 10)), improve_s=0.0, num_workers=1
    )
    assert run.found.proposal.present.attainment == 1.0
    print_tables(run)
    said = capsys.readouterr().out
    assert "achieved: 100.0%" in said
    assert said.count("as it is") == 2
    assert "good enough: no plan could be so much better" in said


def test_a_change_must_bring_what_the_topology_says():
    """It would bring ten points of attainment and more."""
    strict = changed(TOPOLOGY, placement=PlacementSpec(min_gain=0.9, max_latency_ratio=0.01))
    held = heard({"e0": ["a"], "e1": ["a"], "e2": ["b"]}, tally("a", 20), tally("b", 80, late=30))
    verdicts = [
        dry_run(topology, held, improve_s=0.3, num_workers=1).found.proposal.verdict for topology in (TOPOLOGY, strict)
    ]
    assert verdicts[0] == "replace"
    assert verdicts[1] in ("good enough", "not worth it")


def test_silence_is_told():
    with pytest.raises(CommandError, match="nobody asked for anything in 10 s"):
        dry_run(TOPOLOGY, heard({"e0": ["a"]}), improve_s=0.0, num_workers=1)
    with pytest.raises(CommandError, match="no engine was heard that is ready"):
        dry_run(TOPOLOGY, heard({}, tally("a", 1)), improve_s=0.0, num_workers=1)


def test_an_evaluator_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(evaluators, "ENTRY_POINTS", "meshserve.nothing")
    with pytest.raises(UserError, match=r"meshserve\.nothing: simulated: no such entry point; install meshserve again"):
        evaluators.load_evaluators(1)
