"""Switching the policy under way: nothing is lost, sent twice, or moved, and what waits is decided at once."""

from random import Random

from mesh.topology.schema import PolicySpec
from mesh.wire.requests import Cancel, FinishReason, Submit
from router.effects import Deliver, Fail, SendToEngine
from router.generation import Overloaded
from router.policies.registry import make_policy, policies
from router.requests.limits import DispatchLimits
from tests.router.cluster import D0, M0, M1, P0, P1
from tests.router.requests.dispatching import BUSY, World, cancels, submits
from tests.seeds import each_seed

STEPS = 120


def policy(name, **parameters):
    return make_policy(PolicySpec(name, parameters), Random(1))


def verdicts(world, id_):
    return [(one.policy, type(one.decision).__name__) for one in world.dispatcher.timelines.of(id_).decisions]


def test_what_waits_is_decided_by_the_new_policy_at_once():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    for n in range(3):
        assert submits(world.submit(f"r{n}", slo_ttft_s=5.0)) == []
    effects = world.checked(world.dispatcher.switch(policy("least_loaded"), world.now))
    assert [submit.spec.id for _, submit in submits(effects)] == ["r0", "r1", "r2"]
    assert verdicts(world, "r0") == [("tropical", "Wait"), ("least_loaded", "Dispatch")]


def test_every_waiting_request_is_tried_however_many_wait_in_vain():
    world = World(P0, D0, limits=DispatchLimits(max_requests=200, max_waiting=200, reply_s=1.0))
    world.status(P0, **BUSY)
    for n in range(100):
        world.submit(f"r{n}", slo_ttft_s=50.0)
    world.dispatcher.switch(policy("tropical", watermark=0.5), world.now)
    assert all(verdicts(world, f"r{n}") for n in range(100))


def test_what_was_sent_stays_where_it_is():
    world = World(P0, P1, M0, M1)
    world.submit("sent")
    world.submit("running")
    world.accept(P1, "running")
    effects = world.dispatcher.switch(policy("colocated"), world.now)
    assert (submits(effects), cancels(effects)) == ([], [])
    assert world.tokens(P1, 0, 10, id_="running")[0].batch.tokens == (10,)


def test_the_new_policy_decides_how_long_a_request_may_wait():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit("r", slo_ttft_s=1.0)
    world.dispatcher.switch(policy("tropical"), world.now)
    assert [effect for effect in world.wait(1.0) if isinstance(effect, Fail)]


def test_what_an_engine_returns_after_the_switch_waits_as_long_as_the_new_policy_says():
    world = World(P0, D0)
    world.dispatcher.switch(policy("elastic", grace_s=50.0), world.now)
    world.submit("r", slo_ttft_s=1.0)
    world.dispatcher.switch(policy("tropical"), world.now)
    world.status(P0, **BUSY)
    world.status(D0, min_slack_s=0.0)
    world.refuse(P0, "r")
    assert [effect for effect in world.wait(1.5) if isinstance(effect, Fail)]


@each_seed(range(40))
def test_no_request_is_lost_whenever_policies_change(seed):
    random = Random(seed)
    world = World(P0, P1, M0, M1, lease_s=1000.0)
    held: dict[str, tuple[str, Submit]] = {}  # by request: who has it
    received: dict[str, int] = {}
    ended: list[str] = []

    def take(effects):
        for effect in effects:
            match effect:
                case SendToEngine(to, Submit() as submit):
                    assert submit.spec.id not in held, "it is somewhere already"
                    held[submit.spec.id] = to, submit
                case SendToEngine(engine, Cancel(request, epoch)):
                    owner, submit = held.get(request, ("", None))
                    if engine == owner and submit.epoch <= epoch:
                        del held[request]
                case Deliver(request, batch):
                    received[request] += len(batch.tokens)
                    if batch.finish:
                        ended.append(request)
                case Fail(request, _):
                    held.pop(request, None)
                    ended.append(request)

    def give(request, finish=None):
        engine, submit = held[request]
        done = len(submit.spec.generated) + received[request]
        take(world.tokens(engine, done, 7, id_=request, epoch=submit.epoch, finish=finish))
        if finish:
            del held[request]

    for step in range(STEPS):
        action = random.choice(["submit", "submit", "tokens", "tokens", "finish", "refuse", "status", "switch"])
        if action == "submit":
            id_ = f"r{step}"
            received[id_] = 0
            try:
                take(world.submit(id_, random.randint(1, 900), slo_ttft_s=random.choice([0.5, 5.0, 50.0])))
            except Overloaded:
                del received[id_]
        elif action == "status":
            busy = BUSY if random.random() < 0.5 else {}
            take(world.status(random.choice([P0, P1, M0, M1]), min_slack_s=random.choice([None, 0.01, 3.0]), **busy))
        elif action == "switch":
            take(world.checked(world.dispatcher.switch(policy(random.choice(list(policies()))), world.now)))
        elif held:
            request = random.choice(list(held))
            if action == "refuse" and not received[request]:
                engine, submit = held.pop(request)
                take(world.refuse(engine, request, submit.epoch.attempt))
            elif action in ("tokens", "finish"):
                give(request, FinishReason.LENGTH if action == "finish" else None)
        world.now += random.choice([0.0, 0.01, 0.1])
        take(world.wait(0.0))
    for engine in (P0, P1, M0, M1):
        take(world.status(engine))
    while held:
        give(next(iter(held)), FinishReason.LENGTH)
    take(world.wait(100.0))
    while held:
        give(next(iter(held)), FinishReason.LENGTH)
    assert sorted(ended) == sorted(received), "each ends once"
    assert world.dispatcher.num_requests == 0
