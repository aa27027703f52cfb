"""A gateway remembers where prompts went: the next one with the same beginning is predicted to be shorter there."""

import pytest

from mesh.wire.requests import Accepted, Epoch, StepTokens
from mesh.wire.status import PendingPrefill
from router.effects import SendToEngine, SetRoute
from router.history.records import PROMPT_BLOCK
from router.history.timelines import Timelines
from router.policies.elastic import Elastic, ElasticParameters
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.router.cluster import P0, P1, make_delta, make_spec, make_status, sender_of, submit_to

BUSY = [PendingPrefill(due_s=0.5, left_s=0.4)]
LIMITS = DispatchLimits(100, 100, reply_s=1.0)


class World:
    def __init__(self):
        self.dispatcher = Dispatcher(Elastic(ElasticParameters()), Monitor(1e9), LIMITS, Timelines())
        self.seq = 0
        for engine in (P0, P1):
            self.status(engine)

    def status(self, engine, **numbers):
        self.seq += 1
        self.dispatcher.observe(sender_of(engine), make_status(engine, self.seq, num_blocks=999, **numbers), 0.0)

    def submit(self, id_):
        effects = submit_to(self.dispatcher, make_spec(id_, 2 * PROMPT_BLOCK, slo_ttft_s=9.0), 0.0)
        return next(effect.route for effect in effects if isinstance(effect, SetRoute))

    def answer(self, id_, engine, num_cached_tokens=0):
        self.dispatcher.receive(engine, Accepted(id_, Epoch(0), self.seq + 1), 0.0)
        delta = make_delta(0, 5, id_=id_, num_cached_tokens=num_cached_tokens)
        effects = self.dispatcher.receive(engine, StepTokens([delta]), 0.0)
        assert not [effect for effect in effects if isinstance(effect, SendToEngine)]
        self.status(engine, prefills=BUSY)


def test_the_same_beginning_goes_where_it_is_cached():
    world = World()
    first = world.submit("a")
    world.answer("a", first.prefill_engine)
    again = world.submit("b")
    assert again.prefill_engine == first.prefill_engine
    assert again.predicted_ttft_s == pytest.approx(0.401), "all but the last token is cached"


def test_a_lost_engine_has_lost_its_cache():
    world = World()
    first = world.submit("a").prefill_engine
    world.answer("a", first)
    world.seq = 0
    world.dispatcher.observe(sender_of(first, 2), make_status(first, 1, num_blocks=999, prefills=BUSY), 0.0)
    assert world.submit("b").prefill_engine != first
