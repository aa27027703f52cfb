"""Requests for vectors in a gateway: dispatched, recovered and delivered like all others, and handed over by nobody."""

import pytest

from mesh.wire.requests import FinishReason, Pooling, Submit
from router.effects import Deliver
from router.generation import TokenBatch
from tests.router.cluster import D0, M0, M1, P0, P1, make_status
from tests.router.requests.dispatching import World, only_submit, submits

VECTOR = b"\0\0\x80?"
POOLED = {"max_tokens": 1, "pooling": Pooling()}
POLICIES = ("tropical", "disaggregated", "least_loaded", "join_shortest_queue", "elastic", "round_robin", "llumnix")


@pytest.mark.parametrize("policy", POLICIES)
def test_it_stays_where_its_prompt_is_computed(policy: str):
    world = World(P0, D0, policy=policy)
    to, submit = only_submit(world.submit("r", 100, **POOLED))
    assert to == P0
    assert isinstance(submit, Submit)
    assert submit.decode_engine is None
    assert submit.spec.pooling == Pooling()


def test_engines_that_decode_compute_it_if_there_are_no_others():
    to, submit = only_submit(World(D0).submit("r", 100, **POOLED))
    assert (to, submit.decode_engine) == (D0, None)


def test_it_waits_for_no_room_on_decode_engines():
    world = World(P0)
    world.dispatcher.observe(*_full(world))
    assert submits(world.submit("r", 100, **POOLED))


def _full(world: World):
    from tests.router.cluster import sender_of

    world.seq += 1
    return sender_of(D0), make_status(D0, world.seq, num_free_blocks=0), world.now


def test_its_vector_is_delivered_once():
    world = World(M0)
    to, _ = only_submit(world.submit("r", 100, **POOLED))
    world.accept(to)
    given = world.tokens(to, 0, 0, finish=FinishReason.LENGTH, vector=VECTOR)
    assert given == [Deliver("r", TokenBatch((0,), FinishReason.LENGTH, 0, None, None, VECTOR))]
    assert world.dispatcher.num_requests == 0
    assert not [e for e in world.tokens(to, 0, 0, finish=FinishReason.LENGTH, vector=VECTOR) if isinstance(e, Deliver)]


@pytest.mark.parametrize(("first", "second"), [(M0, M1), (P0, P1)])
def test_it_is_computed_elsewhere_when_its_engine_dies(first: str, second: str):
    world = World(first, second)
    to, _ = only_submit(world.submit("r", 100, **POOLED))
    other = second if to == first else first
    world.accept(to)
    at, submit = only_submit(world.status(to, incarnation=2))
    assert (submit.epoch.attempt, submit.spec.generated) == (1, [])
    world.accept(at, attempt=1)
    given = world.tokens(at, 0, 0, epoch=(1, 0), finish=FinishReason.LENGTH, vector=VECTOR)
    assert [e.batch.vector for e in given if isinstance(e, Deliver)] == [VECTOR]
    assert at in (to, other)
