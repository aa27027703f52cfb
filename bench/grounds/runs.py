"""Runs one contender on one ground."""

from dataclasses import dataclass, replace

from bench.combined.contenders import EVERYBODY
from bench.grounds.settings import GROUNDS, OWN, WARM_UP
from bench.simulated import make_simulation, serve

OWN_NAME = "the paper's own"


@dataclass(frozen=True, slots=True)
class Case:
    """One contender, by name, on one ground."""

    ground: str
    contender: str
    num_requests: int
    seed: int


def measure(case: Case) -> float:
    """The ground's measure of what came of the run."""
    ground = GROUNDS[case.ground]
    contender = OWN[case.ground] if case.contender == OWN_NAME else EVERYBODY[case.contender]
    fleet = ground.fleet(contender, case.num_requests, case.seed)
    topology, moves = replace(fleet.topology, rescheduling=contender.rescheduling), contender.rescheduling is not None
    simulation = make_simulation(
        topology, fleet.profiles, case.seed, physics=fleet.physics, slo=fleet.slo, coasts=not moves
    )
    records = serve(simulation, topology.services[0].name, fleet.requests)
    records.sort(key=lambda one: one.arrived_s)
    return ground.value(records[round(WARM_UP * len(records)) :])
