"""Whole simulations in which requests move at random: every one ends once, with all its tokens."""

from collections import Counter
from random import Random

import pytest

from bench.simulation.arrivals import Arrivals, Process, synthesize
from bench.simulation.cluster import Simulation
from mesh.messages import Migrate
from router.records import Outcome
from tests.bench.simulation.small import SERVICE, Profile, simulation, topology
from tests.bench.simulation.test_faults import DURATION_S, FOUR, LENGTHS, random_faults

SCARCE = Profile(kv_memory_bytes=700 * 16 * 327_680)


def move_at_random(sim: Simulation, random: Random, every_s: float) -> None:
    """Now and then any engine is told to move anything that it holds to any other one."""
    source = random.choice(sorted(FOUR))
    engine = sim.engines.get(source)
    requests = sorted(engine.core._requests) if engine is not None else []
    if engine is not None and requests:
        engine.receive("cli", Migrate(random.choice(requests), random.choice(sorted(FOUR)), "random"))
    if sim.kernel.now < 3 * DURATION_S:
        sim.kernel.after(random.expovariate(1 / every_s), move_at_random, sim, random, every_s)


def run_with_moves(seed: int, *, with_faults: bool, coasts: bool = False) -> tuple[Simulation, list[str]]:
    random = Random(seed)
    what = topology(FOUR, random.choice(["tropical", "elastic", "least_loaded"]), num_gateways=2)
    faults = random_faults(random, list(FOUR), ["gateway-0", "gateway-1"]) if with_faults else []
    trace = list(synthesize(LENGTHS, Arrivals(6.0, random.choice(list(Process))), DURATION_S, random))
    profile = random.choice([Profile(), SCARCE])
    sim, records = simulation(what, seed=seed, profile=profile, faults=faults, coasts=coasts), []
    sim.kernel.after(1.0, move_at_random, sim, random, 0.03)
    sim.run(SERVICE, trace, records.append)
    assert Counter(record.id for record in records) == Counter(f"r{number}" for number in range(len(trace)))
    for record in records:
        if record.outcome is Outcome.FINISHED:
            assert record.output_tokens == trace[int(record.id[1:])].num_output
    return sim, [record.outcome for record in records]


@pytest.mark.parametrize("coasts", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_every_request_ends_once_with_all_its_tokens(seed: int, coasts: bool) -> None:
    sim, _ = run_with_moves(seed, with_faults=False, coasts=coasts)
    assert sum(engine.core.status(0.0).migrations_total for engine in sim.engines.values()) > 0


@pytest.mark.parametrize("seed", range(12))
def test_so_it_does_while_engines_die_and_links_break(seed: int) -> None:
    run_with_moves(seed, with_faults=True)
