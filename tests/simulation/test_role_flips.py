"""Engines change roles after a load has shifted, and not while it stays the same."""

from dataclasses import dataclass, replace
from functools import cache
from heapq import merge
from operator import attrgetter
from random import Random

import pytest

from bench.placement.role_flips import Phase
from mesh.topology.schema import PolicySpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from router.history.records import Record
from simulation.loads.trace_request import TraceRequest
from simulation.reports.timeline import Timeline
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

PHASE_S = 25.0
SOON_S = 20.0  # within a phase
PROFILE = Profile(PrefillCost(0.015, 1.6e-4), DecodeCost(0.02, 0.002))  # full with 11 decodes within 50 ms
Load = tuple[Phase, ...]  # at the same time
READ: Load = (Phase("read", 9.5, (1500, 2500), (20, 40)),)  # two prefill engines compute 6 a second
WRITE: Load = (Phase("write", 7.0, (50, 150), (50, 150)),)  # three decode engines serve 8 a second
BOTH = tuple(replace(phase, rate=rate) for phase, rate in ((*READ, 4.0), (*WRITE, 3.0)))
SHIFTING = (READ, WRITE, READ)


@dataclass(frozen=True, slots=True)
class Flip:
    at_s: float
    role: str


def flips_of(timeline: Timeline) -> list[Flip]:
    """Return the flips in order of time."""
    marks = (mark for lane in timeline.lanes.values() for mark in lane.marks if mark.event in set(Role))
    return [Flip(mark.at_s, mark.event) for mark in sorted(marks, key=attrgetter("at_s"))]


def cluster(policy: str, *, flips: bool) -> Topology:
    roles = {"a": Role.PREFILL, "b": Role.PREFILL, "c": Role.MULTIPLEX, "d": Role.MULTIPLEX}
    return replace(topology(roles, policy, slo=Slo(2.0, 0.05)), policy=PolicySpec(policy, {"flips": flips}))


@cache
def serve(phases: tuple[Load, ...], policy: str, seed: int, *, flips: bool) -> tuple[list[Flip], list[Record]]:
    trace: list[TraceRequest] = []
    random = Random(seed)
    for number, phase in enumerate(phases):
        trace += merge(*[one.requests(number * PHASE_S, PHASE_S, random) for one in phase], key=attrgetter("at_s"))
    timeline, records = Timeline(-1.0), list[Record]()
    sim = simulation(cluster(policy, flips=flips), seed=seed, profile=PROFILE, timeline=timeline, coasts=True)
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    return flips_of(timeline), records


@each_seed(1, most=2)
def test_roles_follow_the_load(seed: int):
    flips, _ = serve(SHIFTING, "tropical", seed, flips=True)
    for number, wanted in enumerate((Role.PREFILL, Role.MULTIPLEX, Role.PREFILL)):
        here = [flip for flip in flips if number * PHASE_S <= flip.at_s < (number + 1) * PHASE_S]
        assert here, f"nothing flips in phase {number}"
        assert {flip.role for flip in here} == {wanted}
        assert here[0].at_s % PHASE_S < SOON_S


def test_they_are_worth_it():
    """They keep promises of which otherwise a sixth or more are broken."""
    with_flips, without = (serve(SHIFTING, "tropical", 0, flips=flips)[1] for flips in (True, False))
    broken, otherwise = (sum(not record.meets_slo for record in records) for records in (with_flips, without))
    assert otherwise > len(without) / 6
    assert broken < 0.8 * otherwise


@pytest.mark.parametrize(
    ("policy", "phase"),
    [("tropical", READ), ("tropical", WRITE), ("tropical", BOTH), ("elastic", WRITE)],
    ids=("tropical-read", "tropical-write", "tropical-both", "elastic-write"),
)
def test_a_load_that_stays_the_same_ends_all_flips(policy: str, phase: Load):
    flips, _ = serve((phase,) * 2, policy, 0, flips=True)
    assert all(flip.at_s < PHASE_S for flip in flips), flips
