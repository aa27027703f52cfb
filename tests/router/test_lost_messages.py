"""Any one message may be lost, whichever it is: every answer is whole, and no token is long in coming."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from kvtransfer.protocol import TransferLimits
from mesh.topology.schema import PolicySpec, TransferSpec
from mesh.topology.timing import Timing
from mesh.wire.control import Drain, Migrate, Role
from mesh.wire.messages import Message
from mesh.wire.requests import Accepted, Cancel, Failed, Moved, Refused, StepTokens, Submit
from mesh.wire.transfers import Abort, Blocks, Commit, Committed, Declined, Reserve, Reserved, Taken
from router.effects import Deliver
from router.history.timelines import Timelines
from router.policies.registry import make_policy
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.router.test_migrations import MigratingMesh
from tests.router.test_with_engines import assert_whole, specs
from tests.seeds import each_seed

WORST_GAP_S = 3.0
TIMING, TRANSFER = Timing(), TransferSpec()
SEEDS = 2


@dataclass
class TimedMesh(MigratingMesh):
    """A mesh with the product's deadlines, which remembers how long clients waited at most for their next token."""

    policy: str = "disaggregated"
    heard_at: dict[str, float] = field(default_factory=dict)
    worst_gap_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        policy = make_policy(PolicySpec(self.policy), random.Random(self.seed))
        self.dispatcher = Dispatcher(
            policy, Monitor(TIMING.lease_s), DispatchLimits(100, 100, TIMING.reply_s), Timelines()
        )

    def add(self, name, role=Role.MULTIPLEX, num_blocks=64, **limits):
        engine = super().add(name, role, num_blocks, **limits)
        core = engine.core
        transfer_limits = TransferLimits(reply_s=TIMING.reply_s, window=2, message_bytes=256)
        settings = replace(core._settings, transfer_deadline_s=TRANSFER.deadline_s, transfer_limits=transfer_limits)
        handovers = core._handovers
        core._settings = handovers.arrivals._settings = handovers.departures._settings = settings
        return engine

    def route(self, spec) -> None:
        self.heard_at[spec.id] = self.now
        super().route(spec)

    def do(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self.worst_gap_s = max(self.worst_gap_s, self.now - self.heard_at[effect.request])
                self.heard_at[effect.request] = self.now
        super().do(effects)

    def settle_membership(self) -> None:
        self.beat()
        while len(self.dispatcher._monitor.view().engines) < len(self.engines):
            self.tick()


class Once:
    """Loses one of the messages that are meant, the ``which``-th."""

    def __init__(self, is_meant: Callable[[Message], bool], which: int = 0) -> None:
        self.is_armed = True
        self.has_lost = False
        self._is_meant = is_meant
        self._left = which

    def __call__(self, sender: str, to: str, message: Message) -> bool:
        if not self.is_armed or self.has_lost or not self._is_meant(message):
            return False
        self._left -= 1
        self.has_lost = self._left < 0
        return self.has_lost


def is_a(*kinds: type) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, kinds)


def ends(message: Message) -> bool:
    return isinstance(message, StepTokens) and any(delta.finish is not None for delta in message.deltas)


def make_mesh(seed: int, lose: Once, **limits: int) -> TimedMesh:
    mesh = TimedMesh(seed, lose=lose)
    mesh.add("prefill-0", Role.PREFILL, **limits)
    mesh.add("multiplex-0", Role.MULTIPLEX, **limits)
    mesh.add("multiplex-1", Role.MULTIPLEX, **limits)
    mesh.settle_membership()
    return mesh


def assert_survived(mesh: TimedMesh, lose: Once) -> None:
    mesh.run_until_answered()
    assert lose.has_lost, "the test lost nothing"
    assert_whole(mesh, specs())
    assert mesh.worst_gap_s < WORST_GAP_S


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("kind", [Submit, Accepted, StepTokens, Reserve, Reserved, Blocks, Taken, Commit, Committed])
@each_seed(SEEDS, most=6)
def test_a_message_of_a_hand_over_may_be_lost(seed, kind, which):
    lose = Once(is_a(kind), which)
    mesh = make_mesh(seed, lose)
    for spec in specs():
        mesh.route(spec)
    assert_survived(mesh, lose)


@pytest.mark.parametrize("which", range(8))
@each_seed(SEEDS, most=6)
def test_the_last_tokens_of_a_request_may_be_lost(seed, which):
    lose = Once(ends, which)
    mesh = make_mesh(seed, lose)
    for spec in specs():
        mesh.route(spec)
    assert_survived(mesh, lose)


@each_seed(SEEDS, most=6)
def test_a_refusal_may_be_lost(seed):
    """Requests that an engine has accepted and then sends back, because it is drained."""
    lose = Once(is_a(Refused))
    mesh = make_mesh(seed, lose)
    for spec in specs():
        mesh.route(spec)
    held = mesh.engines["prefill-0"].core
    while not held._requests:
        mesh.tick()
    mesh.deliver("cli", "prefill-0", Drain())
    assert_survived(mesh, lose)


@each_seed(SEEDS, most=6)
def test_the_word_of_a_failed_step_may_be_lost(seed):
    lose = Once(is_a(Failed))
    mesh = make_mesh(seed, lose)
    for spec in specs():
        mesh.route(spec)
    fails = mesh.engines["prefill-0"]
    while not lose.has_lost:
        mesh.tick()
        if fails.batch is not None:
            fails.batch = None
            mesh.perform("prefill-0", fails.core.fail_step("out of memory", mesh.now))
    assert_survived(mesh, lose)


@pytest.mark.parametrize("kind", [Declined, Abort, Cancel])
@each_seed(SEEDS, most=6)
def test_a_no_may_be_lost(seed, kind):
    """An engine without room, and one that gives up what others have reserved there."""
    lose = Once(is_a(kind))
    mesh = make_mesh(seed, lose, max_running=1)
    for spec in specs():
        mesh.route(spec)
    for _ in range(40):
        mesh.tick()
    if kind is not Declined:  # something has to go wrong before anybody aborts or cancels
        lose.is_armed = True
        mesh.crash("multiplex-0")
    mesh.run_until_answered()
    assert_whole(mesh, specs())
    assert mesh.worst_gap_s < WORST_GAP_S


@pytest.mark.parametrize("kind", [Moved, Commit, Committed, Reserve, Reserved, Taken])
@each_seed(SEEDS, most=6)
def test_a_message_of_a_migration_may_be_lost(seed, kind):
    lose = Once(lambda message: isinstance(message, kind) and "." in getattr(message, "transfer", "."))
    lose.is_armed = False
    mesh = TimedMesh(seed, policy="least_loaded", lose=lose)
    for name in ("a", "b"):
        mesh.add(name)
    mesh.settle_membership()
    requests = [spec for spec in specs() if spec.sampling.max_tokens > 8]
    for spec in requests:
        mesh.route(spec)
    while min(len(mesh.answers_of[spec.id]) for spec in requests) < 3:
        mesh.tick()
    lose.is_armed = True
    for name, engine in list(mesh.engines.items()):
        for request in list(engine.core._requests):
            mesh.deliver("cli", name, Migrate(request, "b" if name == "a" else "a", "test"))
    mesh.run_until_answered()
    assert lose.has_lost
    assert_whole(mesh, requests)
    assert mesh.worst_gap_s < WORST_GAP_S


def test_the_deadlines_tested_are_the_products():
    assert (TIMING.reply_s, TRANSFER.deadline_s) == (1.0, 10.0)
    assert DispatchLimits(1, 1, 1.0).stall_s == 60.0
