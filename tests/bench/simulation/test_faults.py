"""Whole simulations in which engines die and hang, links break and messages get lost."""

from random import Random

import pytest

from bench.simulation.arrivals import Arrivals, Process, synthesize
from bench.simulation.faults import Fault, Hang, Kill, Loss, Partition
from bench.simulation.trace_request import TraceRequest
from mesh.messages import Role
from mesh.topology.schema import Slo
from router.policies.registry import POLICIES
from router.records import Outcome
from tests.bench.simulation.small import SERVICE, Profile, assert_all_ended_once, pair, run, simulation, topology

LENGTHS = [TraceRequest(0.0, 1000, 60), TraceRequest(0.0, 300, 25), TraceRequest(0.0, 3000, 12)]
FOUR = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}
DURATION_S = 8.0
SCARCE = Profile(kv_memory_bytes=700 * 16 * 327_680)


def random_faults(random: Random, engines: list[str], gateways: list[str]) -> list[Fault]:
    """Some of each kind at any time; all end."""
    processes = [*engines, *gateways]

    def moment() -> float:
        return random.uniform(0, DURATION_S)

    def some() -> tuple[str, ...]:
        return tuple(random.sample(processes, random.randint(1, 2)))

    def loss() -> Loss:
        return Loss(random.choice([0.01, 0.1, 1.0]), some(), some(), moment(), random.choice([0.1, 1.0, 3.0]))

    faults: list[Fault] = [
        Kill(random.choice(engines), moment(), random.choice([0.001, 0.05, 0.5, 2.0, 5.0]))
        for _ in range(random.randint(1, 3))
    ]
    hangs_s, cuts_s = [0.05, 0.5, 1.5, 4.0], [0.1, 0.9, 3.0]
    faults += [Hang(random.choice(engines), moment(), random.choice(hangs_s)) for _ in range(random.randint(0, 2))]
    faults += [Partition(some(), some(), moment(), random.choice(cuts_s)) for _ in range(random.randint(0, 2))]
    faults += [loss() for _ in range(random.randint(0, 2))]
    return faults


def survive(seed: int, policy: str) -> None:
    """Every request ends once, in full if it finished; engines are left with nothing."""
    random = Random(seed)
    what = topology(FOUR, policy, slo=Slo(random.choice([1.0, 3.0]), 0.1), num_gateways=2)
    faults = random_faults(random, list(FOUR), ["gateway-0", "gateway-1"])
    process = random.choice(list(Process))
    trace = list(synthesize(LENGTHS, Arrivals(random.choice([4.0, 10.0]), process), DURATION_S, random))
    profile = random.choice([Profile(), SCARCE])
    sim, records = simulation(what, seed=seed, profile=profile, noise=0.05, faults=faults), []
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)


TOUCH = [0.7, 0.85, 0.95, 1.05, 1.3]  # seconds, around the lease of 1 s


@pytest.mark.parametrize("for_s", TOUCH)
def test_a_link_that_breaks_for_about_a_lease_delays_requests_by_seconds_only(for_s):
    """Engine and gateway may judge differently whether the other one died."""
    trace = [TraceRequest(0.05 * number, 300, 60) for number in range(20)]
    faults = [Partition(("decode", "prefill"), ("gateway-0",), 1.0, for_s)]
    records = run(pair("disaggregated", slo=Slo(5.0, 0.1)), trace, faults=faults)
    assert all(record.outcome is Outcome.FINISHED for record in records)
    assert max(record.e2e_s for record in records) < 10.0


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(8))
def test_random_faults_lose_no_request(seed, policy):
    survive(seed, policy)
