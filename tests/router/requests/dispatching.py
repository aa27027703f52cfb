"""A dispatcher in a small world: the statuses that it hears, and what it did."""

from random import Random

from mesh.topology.schema import PolicySpec
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Epoch,
    FinishReason,
    Probe,
    RefusalCode,
    Refused,
    StepTokens,
    Submit,
)
from router.effects import Fail, SendToEngine
from router.history.timelines import Timelines
from router.policies.registry import make_policy
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.router.cluster import P0, make_delta, make_spec, make_status, sender_of, submit_to

LIMITS = DispatchLimits(max_requests=8, max_waiting=4, reply_s=1.0)


BUSY = {"prefill_remaining_s": 5.0, "num_waiting": 1}


STOP = FinishReason.STOP


class World:
    """A dispatcher, the statuses that it hears, and what it did."""

    def __init__(self, *engines, policy="tropical", limits=LIMITS, lease_s=100.0) -> None:
        self.now = 0.0
        self.seq = 0
        self.dispatcher = Dispatcher(make_policy(PolicySpec(policy), Random(0)), Monitor(lease_s), limits, Timelines())
        for engine in engines:
            self.status(engine)

    def status(self, engine, incarnation=1, **numbers):
        self.seq += 1
        status = make_status(engine, self.seq, **numbers)
        return self.checked(self.dispatcher.observe(sender_of(engine, incarnation), status, self.now))

    def submit(self, id_="r", *args, **fields):
        return self.checked(submit_to(self.dispatcher, make_spec(id_, *args, **fields), self.now))

    def accept(self, engine=P0, id_="r", attempt=0):
        return self.receive(engine, Accepted(id_, Epoch(attempt), self.seq + 1))

    def refuse(self, engine=P0, id_="r", attempt=0, code=RefusalCode.FULL):
        return self.receive(engine, Refused(id_, Epoch(attempt), code, "no"))

    def tokens(self, engine, offset, *tokens, **fields):
        return self.receive(engine, StepTokens([make_delta(offset, *tokens, **fields)]))

    def receive(self, engine, message):
        return self.checked(self.dispatcher.receive(engine, message, self.now))

    def wait(self, seconds):
        """Time passes, and every timer goes off at its moment."""
        end, effects = self.now + seconds, []
        while (deadline := self.dispatcher.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            effects += self.dispatcher.expire(self.now)
        self.now = end
        return self.checked(effects)

    def checked(self, effects):
        self.dispatcher.check_invariants()
        return effects


def submits(effects):
    return [(e.to, e.message) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Submit)]


def only_submit(effects):
    ((to, message),) = submits(effects)
    return to, message


def probes(effects):
    return [(e.to, e.message.requests) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Probe)]


def without_probes(effects):
    return [e for e in effects if not (isinstance(e, SendToEngine) and isinstance(e.message, Probe))]


def cancels(effects):
    return [(e.to, e.message) for e in effects if isinstance(e, SendToEngine) and isinstance(e.message, Cancel)]


def only_failure(effects):
    (failure,) = [effect for effect in effects if isinstance(effect, Fail)]
    return failure.error


def running_on(engine, *others):
    world = World(engine, *others)
    to, _ = only_submit(world.submit("r", 100))
    world.accept(to)
    world.tokens(to, 0, 10, 11)
    return world, to
