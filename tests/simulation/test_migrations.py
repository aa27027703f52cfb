"""Whole simulations in which requests move at random while nothing goes wrong: nobody notices."""

from random import Random

import pytest

from mesh.wire.control import Migrate, Role
from mesh.wire.frames import Sender
from router.history.records import Outcome
from simulation.cluster import Simulation
from simulation.loads.arrival_processes import Arrivals, Process, synthesize
from simulation.loads.trace_request import TraceRequest
from tests.seeds import each_seed
from tests.simulation.small import SERVICE, Profile, assert_all_ended_once, simulation, topology

LENGTHS = [TraceRequest(0.0, 1000, 60), TraceRequest(0.0, 300, 25), TraceRequest(0.0, 3000, 12)]
FOUR = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}
DURATION_S = 8.0
SCARCE = Profile(kv_memory_bytes=700 * 16 * 327_680)


def move_at_random(sim: Simulation, random: Random, every_s: float) -> None:
    """Now and then any engine is told to move anything that it holds to any other one."""
    source = random.choice(sorted(FOUR))
    requests = sorted(sim.engines[source].core._requests)
    if requests:
        sim.engines[source].receive(
            Sender("cli", 1), Migrate(random.choice(requests), random.choice(sorted(FOUR)), "random")
        )
    if sim.kernel.now < 3 * DURATION_S:
        sim.kernel.after(random.expovariate(1 / every_s), move_at_random, sim, random, every_s)


@pytest.mark.parametrize("coasts", [False, True])
@each_seed(2, most=8)
def test_every_request_ends_once_with_all_its_tokens(seed: int, coasts: bool):
    random = Random(seed)
    what = topology(FOUR, random.choice(["tropical", "elastic", "least_loaded"]), num_gateways=2)
    trace = list(synthesize(LENGTHS, Arrivals(6.0, random.choice(list(Process))), DURATION_S, random))
    sim, records = simulation(what, seed=seed, profile=random.choice([Profile(), SCARCE]), coasts=coasts), []
    sim.kernel.after(1.0, move_at_random, sim, random, 0.03)
    sim.run(SERVICE, trace, records.append)
    assert_all_ended_once(sim, records, trace)
    assert {record.outcome for record in records} <= {Outcome.FINISHED, Outcome.REJECTED}
    assert sum(engine.core.status(0.0).migrations_total for engine in sim.engines.values()) > 0
