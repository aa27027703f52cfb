"""Under a constant load, requests move seldom and a bounded number of times, and nothing moves back and forth."""

from dataclasses import replace
from functools import cache
from math import inf, log2
from random import Random

import pytest

import engines.transfers.incoming
import engines.transfers.rescheduling
from mesh.rules import Trigger
from mesh.topology.schema import Rescheduling, Topology, TransferSpec
from mesh.wire.control import Role
from router.history.records import Record
from simulation.cluster import Simulation
from simulation.loads.arrival_processes import Arrivals, synthesize
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology
from tests.simulation.watch import Seen, Watch

FOUR = dict.fromkeys("abcd", Role.MULTIPLEX)
TIGHT = Profile(kv_memory_bytes=300 * 16 * 327_680)  # 4800 tokens
LENGTHS = [TraceRequest(0.0, prompt, answer) for prompt in (40, 200, 900) for answer in (30, 200, 900)]
RULES = Rescheduling(triggers=(Trigger.LOAD,))
RATE = 1.6


@cache
def served(policy: str, rules: Rescheduling | None, seed: int) -> tuple[Seen, list[Record]]:
    """A minute of the steady load."""
    what = topology(FOUR, policy) if rules is None else rescheduled(policy, rules)
    return serve(what, steady(seed), seed)


def serve(what: Topology, trace: list[TraceRequest], seed: int, profile: Profile = TIGHT) -> tuple[Seen, list[Record]]:
    watch, records = Watch(Simulation.origin_s), list[Record]()
    sim = simulation(what, seed=seed, profile=profile, timeline=watch, coasts=True)
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    return watch.seen, records


def steady(seed: int, duration_s: float = 60.0) -> list[TraceRequest]:
    return list(synthesize(LENGTHS, Arrivals(RATE), duration_s, Random(seed)))


def rescheduled(policy: str, rules: Rescheduling = RULES) -> Topology:
    """Of GPUs, whose copies take no core from decodes: moves are as quick as they were when these loads were chosen."""
    return replace(topology(FOUR, policy), rescheduling=rules, transfer=TransferSpec(migration_share=0.05))


@pytest.mark.parametrize("policy", ["llumnix", "round_robin"])
@each_seed(1, most=2)
def test_moves_are_few(policy: str, seed: int):
    seen, records = served(policy, RULES, seed)
    assert seen.moves, "the load is to be such that there is something to correct"
    assert seen.moves.total() < 0.65 * len(records)


@each_seed(1, most=2)
def test_resting_alone_bounds_the_moves_of_a_request(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Even if there were always a giver, and a receiver took everything. Without rest, requests move 45 times."""
    for module in (engines.transfers.rescheduling, engines.transfers.incoming):
        monkeypatch.setattr(module, "with_one_more", lambda *_: inf)
    eager = replace(RULES, give_below=400.0, take_above=1.0)
    seen, records = serve(rescheduled("round_robin", eager), steady(seed), seed)
    lives_s = {record.id: record.e2e_s or 0.0 for record in records}
    assert seen.moves.total() > len(records)
    for request, moves in seen.moves.items():
        assert moves <= log2(1 + lives_s[request] / eager.rest_s) + 1, (request, moves, lives_s[request])


@each_seed(1, most=2)
def test_moves_do_not_become_more_while_the_load_stays_the_same(seed: int):
    seen, _ = serve(rescheduled("round_robin"), steady(seed, 100.0), seed)
    middle, late = (sum(since <= at_s < since + 35 for at_s in seen.moved_at_s) for since in (30.0, 65.0))
    assert max(middle, late) < 35 * RATE, "more than one a request"


@each_seed(1, most=2)
def test_where_there_is_room_everywhere_nothing_moves(seed: int):
    seen, _ = serve(rescheduled("llumnix"), steady(seed), seed, Profile())
    assert not seen.moves


def test_they_are_worth_it():
    """Of engines that are chosen blindly, full ones give to empty ones: what preemptions cost gets less."""
    lost_s = {"alone": 0.0, "together": 0.0}
    for seed in range(2):
        lost_s["alone"] += served("round_robin", None, seed)[0].lost_s
        lost_s["together"] += served("round_robin", RULES, seed)[0].lost_s
    assert lost_s["together"] < 0.5 * lost_s["alone"]
