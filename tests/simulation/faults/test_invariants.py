"""The watcher finds what it is there to find: each invariant broken on purpose, in a run that is well otherwise."""

import pytest

from mesh.wire.control import Migrate, Role
from router.generation import TokenBatch
from router.history.records import Outcome
from simulation.faults.invariants import InvariantBounds, InvariantError, Invariants, TracedToken
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import SERVICE, Profile, simulation, topology

TWO = {"a": Role.MULTIPLEX, "b": Role.MULTIPLEX}
TRACE = [TraceRequest(0.1 * number, 200, 30) for number in range(4)]
SMALL = Profile(kv_memory_bytes=200 * 16 * 327_680)


def watched(bounds=None):
    return simulation(topology(TWO, "least_loaded"), profile=SMALL, invariants=Invariants(bounds or InvariantBounds()))


def play(sim, trace=TRACE):
    records = []
    sim.run(SERVICE, trace, records.append)
    return records


def holding(sim):
    """An engine that runs something, and the request."""
    return next((engine.core, one) for engine in sim.engines.values() for one in engine.core.running())


def test_a_run_that_is_well_passes():
    sim = watched(InvariantBounds(end_s=10.0, gone_s=1.0, dispatches_per_s=1.0))
    sim.kernel.at(0.5, lambda: sim.processes.engines["a"].order(Migrate(min(sim.engines["a"].core._requests), "b", "")))
    assert {record.outcome for record in play(sim)} == {Outcome.FINISHED}
    assert sum(core._handovers.departures.tally.num_completed for core in sim._invariants.cores) == 1


def break_at(sim, action, match, at_s=0.6):
    sim.kernel.at(at_s, action)
    with pytest.raises(AssertionError, match=match):
        play(sim)


def test_a_second_owner():
    sim = watched()

    def copy():
        core, one = holding(sim)
        other = next(engine.core for engine in sim.engines.values() if engine.core is not core)
        other._services[SERVICE].queue.running.append(one)
        other._requests[one.id] = one
        other._finish_event((), sim.kernel.now)

    break_at(sim, copy, r"a and b run r\d|b and a run r\d")


def test_a_leaked_block():
    sim = watched()
    break_at(sim, lambda: holding(sim)[0]._services[SERVICE].pool.allocate(1), "blocks are held though nothing is here")


def test_tokens_out_of_order_twice_or_of_another_attempt():
    for drawn, match in (
        (TracedToken(5, 0, 0), "delivered as token 0"),
        (TracedToken(0, 1, 0), "after 1 dispatches"),
        (TracedToken(0, 0, 0), None),
    ):
        sim = watched()
        invariants = sim._invariants
        sim.kernel.run(0.0)
        spec = make_spec()
        invariants.arrived(spec)
        invariants.dispatched(spec.id, attempt=0)
        batch = TokenBatch((drawn.token,), None, 0, None, None)
        if match is None:
            invariants.delivered(spec.id, batch)
            with pytest.raises(InvariantError, match="delivered as token 1"):
                invariants.delivered(spec.id, batch)
        else:
            with pytest.raises(InvariantError, match=match):
                invariants.delivered(spec.id, batch)


def make_spec():
    from mesh.wire.requests import RequestSpec, Sampling

    return RequestSpec("r", "gateway-0", SERVICE, [1, 2], Sampling(max_tokens=3, seed=0), 1.0, 1.0)


def test_an_end_before_the_last_token():
    sim = watched()
    invariants, spec = sim._invariants, make_spec()
    sim.kernel.run(0.0)
    invariants.arrived(spec)
    with pytest.raises(InvariantError, match="got 0 of 3 tokens"):
        invariants.delivered(spec.id, TokenBatch((), "length", 0, None, None))


def test_a_storm_of_dispatches():
    sim = watched(InvariantBounds(dispatches_per_s=1.0))
    invariants, spec = sim._invariants, make_spec()
    sim.kernel.run(0.0)
    invariants.arrived(spec)
    for attempt in range(16):
        invariants.dispatched(spec.id, attempt)
    with pytest.raises(InvariantError, match="was dispatched 17 times"):
        invariants.dispatched(spec.id, 16)


def test_a_request_that_does_not_end():
    sim = watched(InvariantBounds(end_s=3.0))
    break_at(sim, lambda: [engine.set_pace(1e3) for engine in sim.engines.values()], r"r\d has not ended 3\.\d s later")


def test_what_engines_keep_of_requests_that_ended():
    sim = watched(InvariantBounds(gone_s=1.0))

    def end_it_without_a_word():
        _, one = holding(sim)
        sim.gateways["gateway-0"].core.dispatcher._recovery.stop = lambda request: []
        sim.leave(one.id)

    long = [TraceRequest(0.0, 200, 200)] * 2
    sim.kernel.at(0.6, end_it_without_a_word)
    sim.gateways["gateway-0"].receive = lambda sender, message: None
    with pytest.raises(InvariantError, match="still holds"):
        play(sim, long)


def test_waiting_requests_beyond_the_bound():
    sim = watched()

    def flood():
        core, one = holding(sim)
        core._services[SERVICE].queue.waiting += [one] * 1000
        core._finish_event((), sim.kernel.now)

    break_at(sim, flood, "1000 wait")
