"""Runs one contender on one ground, and keeps what came of it."""

from dataclasses import dataclass, replace
from pathlib import Path

from bench.combined.contenders import EVERYBODY, Contender
from bench.grounds.settings import GROUNDS, OWN, WARM_UP
from bench.harness.kept import kept
from bench.simulated import make_simulation, serve

OWN_NAME = "the paper's own"


@dataclass(frozen=True, slots=True)
class Run:
    """One contender on one ground. ``folder``: where results are kept."""

    ground: str
    contender: str
    num_requests: int
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class _Case:
    ground: str
    contender: str
    num_requests: int
    seed: int


def measure(run: Run) -> float:
    """The ground's measure of what came of the run."""
    return kept(run.folder, _Case(run.ground, run.contender, run.num_requests, run.seed), _measure, float)


def _measure(case: _Case) -> float:
    ground, contender = GROUNDS[case.ground], _contender(case.ground, case.contender)
    fleet = ground.fleet(contender, case.num_requests, case.seed)
    topology, moves = replace(fleet.topology, rescheduling=contender.rescheduling), contender.rescheduling is not None
    simulation = make_simulation(
        topology, fleet.profiles, case.seed, physics=fleet.physics, slo=fleet.slo, coasts=not moves
    )
    records = serve(simulation, topology.services[0].name, fleet.requests)
    records.sort(key=lambda one: one.arrived_s)
    return ground.value(records[round(WARM_UP * len(records)) :])


def _contender(ground: str, name: str) -> Contender:
    return OWN[ground] if name == OWN_NAME else EVERYBODY[name]
