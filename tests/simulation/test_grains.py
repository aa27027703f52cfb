"""The coarse grain of coasting engines beside the exact one: the same seeds, every percentile."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from random import Random

import pytest

from mesh.wire.control import Role
from router.history.records import Record
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest
from tests.seeds import is_night
from tests.simulation.small import SERVICE, simulation, topology

APART = {"prefill-0": Role.PREFILL, "prefill-1": Role.PREFILL, "mux-0": Role.MULTIPLEX, "mux-1": Role.MULTIPLEX}
TOGETHER = {f"mux-{number}": Role.MULTIPLEX for number in range(4)}
CASES = [
    ("elastic", APART),
    ("tropical", APART),
    ("disaggregated", APART),
    ("kv_aware", APART),
    ("elastic", TOGETHER),
    ("join_shortest_queue", TOGETHER),
    ("chunked", TOGETHER),
]
PERCENTS = 1, *range(5, 100, 5), 99
LATENCIES: dict[str, Callable[[Record], float | None]] = {
    "TTFT": lambda record: record.ttft_s,
    "TPOT": lambda record: record.tpot_s,
    "end to end": lambda record: record.e2e_s,
}
MOST_APART = 0.005  # of a percentile
RATE, DURATION_S = 6.0, 40.0


@pytest.mark.parametrize(("policy", "roles"), CASES if is_night() else CASES[::3])
def test_every_percentile_is_that_of_the_exact_grain(policy: str, roles: dict[str, Role]):
    exact, num_events = played(policy, roles, coasts=False)
    coarse, num_coarse_events = played(policy, roles, coasts=True)
    assert len(exact) == len(coarse)
    assert num_coarse_events < num_events
    for name, latency in LATENCIES.items():
        values, coarse_values = latencies(exact, latency), latencies(coarse, latency)
        assert len(values) == len(coarse_values)
        for percent in PERCENTS:
            at = percent * len(values) // 100
            assert coarse_values[at] == pytest.approx(values[at], rel=MOST_APART), f"P{percent} of {name}"


def played(policy: str, roles: dict[str, Role], *, coasts: bool) -> tuple[list[Record], int]:
    """Return the records, and the number of events."""
    records: list[Record] = []
    sim = simulation(topology(roles, policy), seed=3, coasts=coasts)
    sim.run(SERVICE, load(), records.append)
    return records, sim.kernel.num_events


def load() -> list[TraceRequest]:
    """Lengths spread widely; a prompt in eight or so takes more than one chunk."""
    random = Random("grains")
    return [
        TraceRequest(at_s, round(random.lognormvariate(7, 1)), 1 + round(random.lognormvariate(4, 1)))
        for at_s in takewhile(lambda at_s: at_s < DURATION_S, Arrivals(RATE).times(random))
    ]


def latencies(records: Sequence[Record], latency: Callable[[Record], float | None]) -> list[float]:
    return sorted(value for record in records if (value := latency(record)) is not None)
