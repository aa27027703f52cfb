"""KV tiers in whole simulations: later turns find what left the pools, whichever engine of the host computed it."""

from dataclasses import replace
from random import Random

import pytest

from mesh.topology.schema import HostSpec, Slo
from mesh.topology.stores import KVTiersSpec
from mesh.wire.control import Role
from router.history.records import Outcome
from simulation.engines.tiers import SimulatedTier
from simulation.faults.faults import Kill
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

SCARCE = Profile(kv_memory_bytes=400 * 16 * 327_680)  # 400 blocks of 16 tokens
BLOCK_BYTES = 16 * 327_680
TURN = 512  # tokens of a block of the trace


def talks(count=9, turns=4):
    """Turns of conversations, which take turns: another engine gets the next one of each."""
    dice = Random(1)
    talk = [[dice.randrange(2**30) for _ in range(turns)] for _ in range(count)]
    return [
        TraceRequest(turn * 20.0 + number * 2.0, TURN * (turn + 1), 20, tuple(talk[number][: turn + 1]))
        for turn in range(turns)
        for number in range(count)
    ]


def mesh(tiers, *, policy="round_robin", **options):
    what = topology({"one": Role.MULTIPLEX, "two": Role.MULTIPLEX}, policy, slo=Slo(60.0, 1.0), **options)
    return replace(what, kv_tiers=tiers)


def run(what, trace, **options):
    sim, records = simulation(what, profile=SCARCE, **options), []
    sim.run(SERVICE, trace, records.append)
    return sim, records


def cached(records):
    return sum(record.cached_tokens for record in records)


def loaded(sim, tier):
    tiers = [one for engine in sim.engines.values() for one in engine.core.status(0.0).tiers if one.name == tier]
    return sum(one.loaded_blocks for one in tiers)


def test_turns_find_what_left_the_pools():
    trace = talks()
    most = sum(TURN * turn for turn in range(1, 4)) * 9
    (_, without), (sim, records) = run(mesh(None), trace), run(mesh(KVTiersSpec(2**40)), trace)
    assert_all_ended_once(sim, records, trace)
    assert cached(without) < 0.3 * most
    assert cached(records) == most
    assert loaded(sim, "host") > 0
    ttft, before = (sum(record.ttft_s for record in these) for these in (records, without))
    assert ttft < 0.6 * before


def test_what_the_host_has_no_room_for_comes_from_its_disk():
    trace = talks()
    sim, records = run(mesh(KVTiersSpec(200 * BLOCK_BYTES, None, 2**40)), trace)
    assert_all_ended_once(sim, records, trace)
    assert loaded(sim, "disk") > 0
    _, without = run(mesh(KVTiersSpec(200 * BLOCK_BYTES)), trace)
    assert cached(records) > cached(without)


def test_coasts_are_exact():
    trace = talks()
    what = mesh(KVTiersSpec(600 * BLOCK_BYTES, None, 1200 * BLOCK_BYTES), policy="least_loaded")
    (exact, _), (coasting, _) = (run(what, trace, coasts=coasts) for coasts in (False, True))
    assert loaded(exact, "disk") == loaded(coasting, "disk") > 0
    assert loaded(exact, "host") == loaded(coasting, "host")


@pytest.mark.parametrize("at", [21.0, 41.3])
def test_an_engine_that_starts_again_loads_what_its_host_has(at):
    trace = talks()
    sim, records = run(mesh(KVTiersSpec(2**40)), trace, faults=(Kill("one", at, 1.0),))
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    assert loaded(sim, "host") > 0
    for engine in sim.engines.values():
        engine.core.check_invariants()


# --- engines that pull from each other --------------------------------------------------------------------------------

SHARED = tuple(range(1, 9))  # blocks that all prompts begin with


def burst(count=10):
    """One prompt, and when it is known, many that begin like it: more than one engine should compute."""
    rest = [TraceRequest(30.0 + number * 0.01, TURN * 9, 20, (*SHARED, 100 + number)) for number in range(count)]
    return [TraceRequest(0.0, TURN * 9, 20, (*SHARED, 99)), *rest]


def two_hosts(*, peers):
    what = mesh(KVTiersSpec(2**40, peers=peers), policy="kv_aware")
    one, two = what.engines
    hosts = HostSpec("local", "10.0.0.1"), HostSpec("other", "10.0.0.2")
    return replace(what, engines=(one, replace(two, host="other")), hosts=hosts)


def test_engines_pull_what_another_host_has():
    trace = burst()
    (without, before), (sim, records) = run(two_hosts(peers=False), trace), run(two_hosts(peers=True), trace)
    assert_all_ended_once(sim, records, trace)
    assert loaded(without, "peers") == 0
    assert loaded(sim, "peers") == 8 * TURN // 16  # once: then the other host has it
    assert cached(records) > cached(before)


@each_seed(4)
def test_pulls_with_faults_change_no_answer(seed):
    dice = Random(seed)
    trace = [replace(one, at_s=one.at_s + 40.0 * turn) for turn in range(3) for one in burst(6)]
    faults = (Kill("one", 30.0 + dice.random(), 1.0), Kill("two", 70.0 + dice.random(), 1.0))
    sim, records = run(two_hosts(peers=True), trace, faults=faults, seed=seed)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    for engine in sim.engines.values():
        engine.core.check_invariants()


# --- gateways that are told -------------------------------------------------------------------------------------------


def held(engine):
    """Names of the prefixes that an engine has, as it would tell who asks."""
    [told] = engine.core.tiering.held.subscribe("a stranger")
    return {name for of in told.message.services for name in of.kept}


@pytest.mark.parametrize("faults", [(), (Kill("gateway-1", 45.0, 1.0), Kill("one", 61.0, 1.0))])
def test_all_gateways_know_what_engines_hold(faults):
    trace = talks()
    sim, _ = run(mesh(KVTiersSpec(2**40), policy="kv_aware", num_gateways=2), trace, faults=faults)
    sim.kernel.run(sim.kernel.now + 10.0)  # what is on its way arrives, and engines publish once more
    assert any(held(engine) for engine in sim.engines.values())
    for name, engine in sim.engines.items():
        for gateway in sim.gateways.values():
            told = gateway.core.dispatcher.prefixes._of[SERVICE]._held[name].told
            assert told == held(engine), (gateway, name)


def test_a_full_tier_gives_up_first_what_was_used_the_longest_ago():
    tier = SimulatedTier(4)
    for number in range(4):
        tier.write(f"{number}", 1, float(number))
    for used_at in range(10, 30):
        tier.touch("0", float(used_at))
    tier.touch("1", 5.0)
    tier.touch("not there", 6.0)
    assert (tier.write("4", 2, 7.0), [*tier.blocks], tier.used_bytes) == (2, ["0", "1", "4"], 4)
