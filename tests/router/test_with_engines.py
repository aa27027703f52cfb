"""A dispatcher against real engine cores on a virtual network: whatever is lost or dies, every answer is whole."""

import random
from dataclasses import dataclass, field

import pytest

from mesh.effects import Forget
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Role
from mesh.wire.frames import Sender
from mesh.wire.messages import Message
from mesh.wire.requests import RequestSpec, Sampling, StepTokens
from mesh.wire.status import EngineStatus
from router.effects import Deliver, Effect, Fail, SendToEngine
from router.generation import RouterError
from router.history.timelines import Timelines
from router.policies.registry import make_policy, policies
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE, continuation
from tests.router.cluster import submit_to
from tests.seeds import each_seed

HEARTBEAT_S = 0.1
SEEDS = range(3)
PATIENCE_S = 600.0


@dataclass
class RoutedMesh(VirtualMesh):
    """A virtual mesh whose gateway is a dispatcher. The wall clock of all is ``now``."""

    policy: str = "tropical"
    answers_of: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, RouterError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        policy = make_policy(PolicySpec(self.policy), random.Random(self.seed))
        limits = DispatchLimits(max_requests=100, max_waiting=100, reply_s=0.5)
        self.dispatcher = Dispatcher(policy, Monitor(lease_s=0.5), limits, Timelines())
        self.incarnations: dict[str, int] = {}
        self._next_beat = 0.0

    def route(self, spec: RequestSpec) -> None:
        self.answers_of[spec.id] = []
        self.do(submit_to(self.dispatcher, spec, self.now))

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendToEngine(to, message) if not self.lose(GATEWAY, to, message):
                    self._links[GATEWAY, to].append(self._sending(GATEWAY, to, message))
                case Forget(engine):
                    self._links[GATEWAY, engine].clear()
                case Deliver(request, batch):
                    self.answers_of[request] += batch.tokens
                    if batch.finish is not None:
                        self.finished[request] = batch.finish
                case Fail(request, error):
                    self.errors[request] = error
        self.dispatcher.check_invariants()

    def _sending(self, name: str, to: str, message: Message):
        if to == GATEWAY:
            return lambda: self.do(self.dispatcher.receive(name, message, self.now))
        return super()._sending(name, to, message)

    def beat(self) -> None:
        self._next_beat = self.now + HEARTBEAT_S
        for name, engine in self.engines.items():
            if not engine.dead:
                sender = Sender(name, self.incarnations.setdefault(name, 1))
                self._links[name, "status"].append(self._saying(sender, engine.core.status(self.now)))

    def _saying(self, sender: Sender, status: EngineStatus):
        return lambda: self.do(self.dispatcher.observe(sender, status, self.now))

    def crash(self, name: str) -> None:
        self.kill(name)
        for link, messages in self._links.items():
            if name in link:
                messages.clear()

    def revive(self, name: str, role: Role) -> None:
        self.incarnations[name] += 1
        self.add(name, role)

    def run_until_answered(self) -> None:
        started_at = self.now
        while len(self.finished) + len(self.errors) < len(self.answers_of):
            assert self.now < started_at + PATIENCE_S, f"{self.dispatcher!r} {self.engines}"
            self.tick()
        while not all(engine.dead or engine.core.is_idle for engine in self.engines.values()):
            assert self.now < started_at + 2 * PATIENCE_S, "an engine holds on to something"
            self.tick()

    def tick(self) -> None:
        if self.now >= self._next_beat:
            self.beat()
        if is_due(self.dispatcher.next_deadline(), self.now):
            self.do(self.dispatcher.expire(self.now))
        for name, engine in self.engines.items():
            if not engine.dead and is_due(engine.core.next_deadline(), self.now):
                self.perform(name, engine.core.expire(self.now))
        if not self.step():
            self.now = min([self._next_beat, *self._deadlines()])

    def _deadlines(self) -> list[float]:
        deadlines = [engine.core.next_deadline() for engine in self.engines.values() if not engine.dead]
        return [deadline for deadline in (*deadlines, self.dispatcher.next_deadline()) if deadline is not None]


def is_due(deadline: float | None, now: float) -> bool:
    return deadline is not None and deadline <= now


def make_mesh(seed, policy="tropical", **options) -> RoutedMesh:
    mesh = RoutedMesh(seed, policy=policy, **options)
    mesh.add("prefill-0", Role.PREFILL)
    mesh.add("multiplex-0", Role.MULTIPLEX)
    mesh.add("multiplex-1", Role.MULTIPLEX)
    mesh.beat()
    return mesh


def specs(num_requests=8):
    return [
        RequestSpec(
            id=f"r{index}",
            gateway=GATEWAY,
            service=SERVICE,
            prompt=list(range(index + 1, index + 4 + 4 * index)),
            sampling=Sampling(max_tokens=2 + 2 * index, seed=1, temperature=0.0),
            slo_ttft_s=60.0,
            slo_tpot_s=0.1,
        )
        for index in range(num_requests)
    ]


def assert_whole(mesh, requests):
    assert mesh.errors == {}
    for spec in requests:
        assert mesh.answers_of[spec.id] == continuation(spec.prompt, spec.sampling.max_tokens), spec.id


@pytest.mark.parametrize("policy", policies())
@each_seed(SEEDS)
def test_every_policy_serves_a_burst(policy, seed):
    mesh = make_mesh(seed, policy)
    for spec in specs():
        mesh.route(spec)
    mesh.run_until_answered()
    assert_whole(mesh, specs())


@pytest.mark.parametrize("victim", ["prefill-0", "multiplex-0"])
@each_seed(SEEDS)
def test_an_engine_that_dies_breaks_no_stream(seed, victim):
    mesh = make_mesh(seed)
    role = mesh.engines[victim].core.role
    for spec in specs():
        mesh.route(spec)
    for _ in range(150):
        mesh.tick()
    mesh.crash(victim)
    for _ in range(150):
        mesh.tick()
    mesh.revive(victim, role)
    mesh.run_until_answered()
    assert_whole(mesh, specs())


@each_seed(range(10))
def test_lost_messages_break_no_stream(seed):
    dice = random.Random(seed)
    mesh = make_mesh(seed, lose=lambda sender, to, message: dice.random() < 0.02)
    for spec in specs():
        mesh.route(spec)
    mesh.run_until_answered()
    assert_whole(mesh, specs())


@each_seed(SEEDS)
def test_cancelled_requests_leave_nothing_behind(seed):
    mesh = make_mesh(seed)
    for spec in specs():
        mesh.route(spec)
    for _ in range(100):
        mesh.tick()
    for spec in specs()[::2]:
        mesh.do(mesh.dispatcher.cancel(spec.id, mesh.now))
        mesh.answers_of.pop(spec.id)
        mesh.finished.pop(spec.id, None)
    mesh.run_until_answered()
    assert_whole(mesh, specs()[1::2])


def test_tokens_of_a_step_travel_in_one_message():
    seen = []
    mesh = make_mesh(0, lose=lambda sender, to, message: seen.append(message) and False)
    for spec in specs():
        mesh.route(spec)
    mesh.run_until_answered()
    assert max(len(message.deltas) for message in seen if isinstance(message, StepTokens)) > 1
