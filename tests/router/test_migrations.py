"""Running requests move between engine cores, with a dispatcher as gateway: no token is lost, repeated or changed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kvtransfer.protocol import Send
from mesh.topology.schema import Rescheduling
from mesh.wire.control import Drain, Migrate, ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.messages import Message
from mesh.wire.requests import Moved, Refused, RequestSpec, Sampling
from mesh.wire.status import EngineStatus
from mesh.wire.transfers import Commit, Committed, Extend, Extended, Reserve, Reserved, Taken
from router.history.timeline import Interrupted
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE, continuation
from tests.router.test_with_engines import RoutedMesh
from tests.seeds import each_seed

SEEDS = 2
ENGINES = ("a", "b", "c")


@dataclass
class MigratingMesh(RoutedMesh):
    """Engines hear each other's statuses, messages may come twice, and nobody runs what another one runs."""

    policy: str = "least_loaded"
    twice: Callable[[], bool] = lambda: False
    sent: list[Message] = field(default_factory=list)

    def perform(self, name, effects) -> None:
        again = [effect for effect in effects if isinstance(effect, Send) and self.twice()]
        self.sent += [effect.message for effect in effects if isinstance(effect, Send)]
        super().perform(name, [*effects, *again])
        self.check_owners()

    def _saying(self, sender: Sender, status: EngineStatus):
        say = super()._saying(sender, status)

        def run() -> None:
            say()
            for name, engine in self.engines.items():
                if name != sender.process and not engine.dead:
                    looks = engine.core.observe(sender.process, status, self.now)
                    self.perform(name, engine.core.look(self.now) if looks else [])

        return run

    def check_owners(self) -> None:
        running = [
            (request.id, request.epoch)
            for engine in self.engines.values()
            if not engine.dead
            for request in engine.core._services[SERVICE].queue.running
        ]
        assert len(set(running)) == len(running), f"two engines run the same: {running}"

    def owner(self, request: str) -> str | None:
        return next(
            (name for name, one in self.engines.items() if not one.dead and request in one.core._requests), None
        )

    def migrate(self, request: str, to: str, source: str | None = None) -> None:
        source = source or self.owner(request)
        if source is not None:
            self.deliver("cli", source, Migrate(request, to, "test"))

    def tally(self, key: str) -> int:
        return sum(getattr(engine.core._handovers.departures.tally, key) for engine in self.engines.values())

    def num_interruptions(self) -> int:
        stories = [self.dispatcher.timelines.of(request) for request in self.answers_of]
        return sum(isinstance(event, Interrupted) for story in stories for event in story.events)

    def decode_until(self, request: str, num_tokens: int) -> None:
        while len(self.answers_of[request]) < num_tokens:
            self.tick()


def make_mesh(
    seed: int, num_blocks: int = 64, rescheduling: Rescheduling | None = None, roles=(Role.MULTIPLEX,) * 3, **options
) -> MigratingMesh:
    mesh = MigratingMesh(seed, **options)
    for name, role in zip(ENGINES, roles, strict=True):
        mesh.add(name, role, num_blocks=num_blocks, rescheduling=rescheduling)
    mesh.beat()
    while len(mesh.dispatcher._monitor.view().engines) < len(ENGINES):
        mesh.tick()
    return mesh


def spec(request: str, num_prompt: int, max_tokens: int, first: int = 1) -> RequestSpec:
    sampling = Sampling(max_tokens=max_tokens, seed=1, temperature=0.0)
    return RequestSpec(request, GATEWAY, SERVICE, list(range(first, first + num_prompt)), sampling, 60.0, 0.5)


def specs(num_requests: int = 6) -> list[RequestSpec]:
    return [spec(f"r{index}", 3 + 5 * index, 10 + 9 * index, index + 1) for index in range(num_requests)]


def assert_whole(mesh: MigratingMesh, requests: list[RequestSpec]) -> None:
    assert mesh.errors == {}
    for one in requests:
        assert mesh.answers_of[one.id] == continuation(one.prompt, one.sampling.max_tokens), one.id
    for engine in mesh.engines.values():
        assert engine.dead or engine.core._services[SERVICE].pool.num_held == 0


def run_with_random_migrations(mesh: MigratingMesh, dice: random.Random, *, rate: float = 0.1) -> None:
    for _ in range(100_000):
        mesh.tick()
        if len(mesh.finished) + len(mesh.errors) == len(mesh.answers_of):
            break
        alive = [name for name, engine in mesh.engines.items() if not engine.dead]
        held = [(name, request) for name in alive for request in mesh.engines[name].core._requests]
        if held and dice.random() < rate:
            source, request = dice.choice(sorted(held))
            mesh.migrate(request, dice.choice(ENGINES), source)
    mesh.run_until_answered()


def losing(dice: random.Random) -> Callable[[str, str, Message], bool]:
    """What is lost between gateway and engines costs an attempt, and a request has few of those."""
    return lambda sender, to, message: dice.random() < (0.003 if GATEWAY in (sender, to) else 0.05)


def fill(mesh: MigratingMesh, engine: str) -> None:
    mesh.engines[engine].core._services[SERVICE].pool.can_allocate = lambda count: False


def one_decoding(seed: int, **options) -> tuple[MigratingMesh, RequestSpec, str, str]:
    """A request of which some tokens are out, where it runs, and where else it could."""
    mesh, one = make_mesh(seed, **options), spec("r", 21, 60)
    mesh.route(one)
    mesh.decode_until("r", 8)
    source = mesh.owner("r")
    assert source is not None
    return mesh, one, source, next(name for name in ENGINES if name != source)


@each_seed(SEEDS)
def test_a_request_moves_while_it_decodes_and_nothing_is_computed_again(seed):
    mesh, one, source, other = one_decoding(seed)
    mesh.migrate("r", other)
    mesh.run_until_answered()
    assert_whole(mesh, [one])
    assert [type(message) for message in mesh.sent if isinstance(message, Moved | Refused)] == [Moved]
    committed = next(message for message in mesh.sent if isinstance(message, Committed))
    commit = next(message for message in mesh.sent if isinstance(message, Commit))
    assert committed.num_kept_tokens == one.num_tokens + len(commit.generated) - 1
    assert mesh.engines[source].core.status(mesh.now).migrations_total == 1
    assert mesh.num_interruptions() == 0


@each_seed(SEEDS)
def test_random_migrations_disturb_nobody(seed):
    mesh = make_mesh(seed)
    for one in specs():
        mesh.route(one)
    run_with_random_migrations(mesh, random.Random(seed))
    assert_whole(mesh, specs())
    assert mesh.tally("num_completed") > 0
    assert mesh.num_interruptions() == 0


@each_seed(SEEDS)
def test_a_request_may_be_preempted_or_find_no_room_while_it_moves(seed):
    mesh = make_mesh(seed, num_blocks=23 + seed % 3)
    for one in specs():
        mesh.route(one)
    run_with_random_migrations(mesh, random.Random(seed), rate=0.3)
    assert_whole(mesh, specs())
    assert mesh.tally("num_aborted") > 0


@each_seed(SEEDS)
def test_tokens_that_are_held_back_are_said_before_the_request_leaves(seed):
    mesh = MigratingMesh(seed)
    for name in ENGINES:
        mesh.add(name, Role.MULTIPLEX, num_blocks=64, deliver_every=7)
    mesh.beat()
    for one in specs():
        mesh.route(one)
    run_with_random_migrations(mesh, random.Random(seed))
    assert_whole(mesh, specs())
    assert mesh.num_interruptions() == 0


@each_seed(5)
def test_loss_and_duplication_break_no_stream(seed):
    dice = random.Random(seed)
    mesh = make_mesh(seed, lose=losing(dice), twice=lambda: dice.random() < 0.1)
    for one in specs():
        mesh.route(one)
    run_with_random_migrations(mesh, dice)
    assert_whole(mesh, specs())


@each_seed(5)
def test_everything_at_once_breaks_no_stream(seed):
    dice = random.Random(seed)
    mesh = make_mesh(
        seed,
        num_blocks=dice.choice([23, 26, 64]),
        lose=losing(dice),
        twice=lambda: dice.random() < 0.05,
    )
    for one in specs():
        mesh.route(one)
    victim = dice.choice(ENGINES)
    deaths = sorted(dice.sample(range(400), 2))
    for step in range(deaths[1]):
        if step == deaths[0]:
            mesh.crash(victim)
        mesh.tick()
        held = [(name, r) for name, e in mesh.engines.items() if not e.dead for r in e.core._requests]
        if held and dice.random() < 0.1:
            source, request = dice.choice(sorted(held))
            mesh.migrate(request, dice.choice(ENGINES), source)
    mesh.revive(victim, Role.MULTIPLEX)
    run_with_random_migrations(mesh, dice)
    assert_whole(mesh, specs())


@pytest.mark.parametrize("victim", ["source", "destination"])
@pytest.mark.parametrize("ticks", range(0, 60, 2))
@each_seed(1)
def test_either_side_may_die_at_any_stage(seed, ticks, victim):
    mesh, one, source, other = one_decoding(seed)
    mesh.migrate("r", other)
    for _ in range(ticks):
        mesh.tick()
    has_committed = any(isinstance(message, Commit) for message in mesh.sent)
    mesh.crash(other if victim == "destination" else source)
    mesh.run_until_answered()
    assert_whole(mesh, [one])
    if victim == "destination" and not has_committed:
        assert mesh.num_interruptions() == 0, "the source should have gone on by itself"
    assert mesh.num_interruptions() <= 1


@pytest.mark.parametrize("kind", [Reserve, Reserved, Extend, Extended, Taken, Commit, Committed])
@each_seed(SEEDS)
def test_whatever_word_is_lost_the_request_goes_on_without_its_gateway_doing_anything(seed, kind):
    mesh, one, source, other = one_decoding(
        seed, lose=lambda sender, to, message: isinstance(message, kind) and message.transfer.startswith("r.")
    )
    mesh.migrate("r", other)
    mesh.run_until_answered()
    assert_whole(mesh, [one])
    assert mesh.num_interruptions() == 0
    if kind not in (Extend, Extended):  # it may be done before it needs more room
        assert mesh.engines[source].core.status(mesh.now).migrations_aborted_total == 1


@each_seed(SEEDS)
@pytest.mark.parametrize("ticks", range(0, 40, 4))
def test_a_request_cancelled_in_mid_migration_leaves_nothing(seed, ticks):
    mesh, _, _, other = one_decoding(seed)
    mesh.migrate("r", other)
    for _ in range(ticks):
        mesh.tick()
    mesh.do(mesh.dispatcher.cancel("r", mesh.now))
    del mesh.answers_of["r"]
    mesh.run_until_answered()
    assert_whole(mesh, [])


@each_seed(SEEDS)
def test_a_destination_without_room_refuses_and_the_source_goes_on(seed):
    mesh, one, source, other = one_decoding(seed)
    fill(mesh, other)
    mesh.migrate("r", other)
    mesh.run_until_answered()
    status = mesh.engines[source].core.status(mesh.now)
    assert (status.migrations_total, status.migrations_aborted_total) == (0, 1)
    assert status.last_aborted_migration == f"r to {other}: 64 blocks are free"
    assert mesh.answers_of["r"] == continuation(one.prompt, 60)
    assert mesh.num_interruptions() == 0


@each_seed(SEEDS)
def test_a_destination_that_fills_up_between_stages_refuses_then(seed):
    mesh = make_mesh(seed, lose=lambda sender, to, message: isinstance(message, Taken))
    one = spec("r", 21, 60)
    mesh.route(one)
    mesh.decode_until("r", 8)
    source = mesh.owner("r")
    other = next(name for name in ENGINES if name != source)
    mesh.migrate("r", other)
    while not any(isinstance(message, Reserved) for message in mesh.sent):
        mesh.tick()
    fill(mesh, other)
    mesh.run_until_answered()
    assert_whole(mesh, [one])
    assert "more blocks were wanted" in mesh.engines[source].core.status(mesh.now).last_aborted_migration


@each_seed(SEEDS)
def test_what_cannot_migrate_says_why(seed):
    mesh, _, source, other = one_decoding(seed)
    said = []
    for request, to in (("nobody", other), ("r", source), ("r", other), ("r", other)):
        mesh.migrate(request, to, source)
        said.append(mesh.engines[source].core.status(mesh.now).last_aborted_migration)
    assert said[0] == f"nobody to {other}: it is not here"
    assert said[1] == said[2] == f"r to {source}: it is there already"
    assert said[3] == f"r to {other}: it is on its way already"
    mesh.run_until_answered()


@pytest.mark.parametrize("lossy", [False, True])
@each_seed(SEEDS)
def test_a_drained_engine_is_empty_long_before_its_answers_end(seed, lossy):
    dice = random.Random(seed)

    def lose(sender: str, to: str, message: Message) -> bool:
        return lossy and GATEWAY not in (sender, to) and dice.random() < 0.05

    mesh = make_mesh(seed, num_blocks=128, lose=lose)
    requests = [spec(f"r{index}", 3 + 5 * index, 200, index + 1) for index in range(6)]
    for one in requests:
        mesh.route(one)
    for _ in range(100):
        mesh.tick()
    drained = mesh.engines["a"].core
    mesh.deliver("cli", "a", Drain())
    started_at = mesh.now
    while not drained.is_idle:
        mesh.tick()
    assert lossy or not mesh.finished
    assert mesh.now - started_at < 60.0
    assert drained.status(mesh.now).state is ProcessState.DRAINING
    mesh.run_until_answered()
    assert_whole(mesh, requests)
    assert mesh.num_interruptions() == 0


def test_a_drained_engine_can_serve_again():
    mesh = make_mesh(0)
    mesh.deliver("cli", "a", Drain())
    mesh.deliver("cli", "a", Drain(undo=True))
    assert mesh.engines["a"].core.status(0.0).state is ProcessState.READY
    mesh.engines["a"].core.drain(0.0)
    mesh.deliver("cli", "a", Drain(undo=True))
    assert mesh.engines["a"].core.status(0.0).state is ProcessState.DRAINING


def test_a_migration_sends_each_full_block_once():
    mesh, one, _, other = one_decoding(0)
    mesh.migrate("r", other)
    mesh.run_until_answered()
    blocks = [message for message in mesh.sent if type(message).__name__ == "Blocks"]
    starts = [message.first_block for message in blocks]
    assert starts == sorted(set(starts))
    assert sum(message.num_tokens for message in blocks) >= one.num_tokens // BLOCK_SIZE * BLOCK_SIZE
