"""Prefixes that engines pull from each other: answers stay the same, whatever becomes of the peer."""

import random
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from kvtransfer.protocol import ImportBlocks, Send
from mesh.wire.messages import Message
from mesh.wire.requests import Cancel, Delta, Epoch, PrefixAt, RequestSpec, StepTokens, Submit
from mesh.wire.transfers import Abort, Commit, Declined, Pull, Reserve
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine, VirtualTier
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, continuation
from tests.seeds import each_seed

SEEDS = 6
TURN = 41  # tokens of a prompt: to compute them takes longer than to begin to pull


def turns(make_spec: MakeSpec, name: str, count: int) -> Iterator[RequestSpec]:
    prompt, first = list[int](), 10 + sum(name.encode())
    for turn in range(count):
        prompt = [*prompt, *range(first + 100 * turn, first + 100 * turn + TURN)]
        yield make_spec(f"{name}-{turn}", prompt=list(prompt), max_tokens=4)
        prompt += continuation(prompt, 4)


def of_peers(engine: VirtualEngine) -> tuple[int, int]:
    """Blocks that came from other engines, and pulls that brought less than they were to."""
    tier = engine.core.status(0.0).tiers[-1]
    assert tier.name == "peers"
    return tier.loaded_blocks, tier.faults


def pair(mesh: VirtualMesh, *, num_blocks: int = 64) -> tuple[VirtualEngine, VirtualEngine]:
    """Engines of hosts that share nothing."""
    one, two = (mesh.add(name, num_blocks=num_blocks, tier=VirtualTier(), pulls=1) for name in ("one", "two"))
    return one, two


def ask(mesh: VirtualMesh, engine: str, spec: RequestSpec, at: str | None = None) -> None:
    mesh.submit(engine, spec, prefix_at=None if at is None else PrefixAt(at, len(spec.prompt)))
    mesh.settle()
    assert mesh.streams[spec.id] == continuation(spec.prompt, 4), spec.id


def test_what_a_peer_has_in_its_pool_is_pulled(make_spec: MakeSpec):
    mesh = VirtualMesh()
    _, two = pair(mesh)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "one", first)
    ask(mesh, "two", second, "one")
    assert of_peers(two) == ((len(first.prompt) + 3) // BLOCK_SIZE, 0)  # it was asked for more than it has
    assert two.core.status(0.0).services[0].pull_token_s > 0


def test_the_first_token_tells_which_engine_sent_how_much(make_spec: MakeSpec):
    told: list[Delta] = []

    def listen(_sender: str, _to: str, message: Message) -> bool:
        told.extend(message.deltas if isinstance(message, StepTokens) else ())
        return False

    mesh = VirtualMesh(lose=listen)
    _, two = pair(mesh)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "one", first)
    ask(mesh, "two", second, "one")
    [brought] = [delta.brought for delta in told if delta.brought is not None]
    assert (brought.num_tokens, brought.peer, brought.tiers) == (of_peers(two)[0] * BLOCK_SIZE, "one", [])


def test_what_was_pulled_is_not_stored_a_second_time(make_spec: MakeSpec):
    mesh = VirtualMesh()
    one, two = pair(mesh)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "one", first)
    ask(mesh, "two", second, "one")
    assert one.tier is not None
    assert two.tier is not None
    assert not one.tier.contents.keys() & two.tier.contents.keys()
    assert len(two.tier.contents) == (len(second.prompt) + 3) // BLOCK_SIZE - of_peers(two)[0]


def test_what_left_the_pool_of_a_peer_comes_from_its_tier(make_spec: MakeSpec):
    mesh, tier = VirtualMesh(), VirtualTier()
    mesh.add("before", num_blocks=64, tier=tier)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "before", first)
    one = mesh.add("one", num_blocks=64, tier=tier, pulls=1)
    two = mesh.add("two", num_blocks=64, tier=VirtualTier(), pulls=1)
    ask(mesh, "two", second, "one")
    assert of_peers(two)[0] == (len(first.prompt) + 3) // BLOCK_SIZE
    assert one.core.status(0.0).tiers[0].loaded_blocks == of_peers(two)[0]


@each_seed(SEEDS)
def test_many_at_once_with_words_that_are_lost(seed: int, make_spec: MakeSpec):
    dice = random.Random(seed)
    mesh = VirtualMesh(
        seed,
        lose=lambda sender, to, message: GATEWAY not in (sender, to) and dice.random() < 0.1,
        spoil=lambda: dice.random() < 0.1,
    )
    names = ("one", "two", "three")
    for name in names:
        mesh.add(name, num_blocks=60, tier=VirtualTier(), pulls=1)
    specs, last = [spec for name in "abcd" for spec in turns(make_spec, name, 3)], dict[str, str]()
    for spec in sorted(specs, key=lambda spec: len(spec.prompt)):
        talk, engine = spec.id[0], dice.choice(names)
        mesh.submit(engine, spec, prefix_at=PrefixAt(last.get(talk, "three"), dice.randrange(TURN, TURN + 60)))
        last[talk] = engine
        for _ in range(dice.randrange(20, 60)):
            mesh.step()
        if dice.random() < 0.2:
            mesh.deliver(GATEWAY, dice.choice(names), Cancel(spec.id, Epoch(1)))
    mesh.settle(60_000)
    for spec in specs:
        stream = mesh.streams[spec.id]
        assert stream == continuation(spec.prompt, 4)[: len(stream)], spec.id


@each_seed(SEEDS)
def test_a_peer_that_dies_in_mid_pull(seed: int, make_spec: MakeSpec):
    mesh, dice = VirtualMesh(seed), random.Random(seed)
    pair(mesh)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "one", first)
    mesh.submit("two", second, prefix_at=PrefixAt("one", TURN))
    for _ in range(dice.randrange(2, 20)):
        mesh.step()
    mesh.kill("one")
    mesh.settle()
    assert mesh.streams[second.id] == continuation(second.prompt, 4)


# --- one engine that pulls --------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> VirtualEngine:
    return VirtualMesh().add("two", num_blocks=64, tier=VirtualTier(), pulls=1)


def begin(engine: VirtualEngine, spec: RequestSpec) -> Pull:
    engine.core.receive(GATEWAY, Submit(spec, Epoch(1), prefix_at=PrefixAt("one", len(spec.prompt))), (), 0.0)
    batch, effects = engine.core.next_batch(0.0)
    assert batch is None
    [pull] = [effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Pull)]
    return pull


def computes_from(engine: VirtualEngine, now: float = 0.0) -> int:
    batch, _ = engine.core.next_batch(now)
    assert batch is not None
    return batch.chunks[0].start


def test_a_peer_that_declines_is_not_asked_again_for_a_moment(engine: VirtualEngine, make_spec: MakeSpec):
    first, _ = turns(make_spec, "a", 2)
    pull = begin(engine, first)
    assert len(pull.digests) == (TURN - 1) // BLOCK_SIZE
    engine.core.receive("one", Declined(pull.transfer, "full", "busy"), (), 0.0)  # type: ignore[arg-type]
    assert computes_from(engine) == 0
    assert of_peers(engine) == (0, 1)
    again = Submit(next(turns(make_spec, "b", 1)), Epoch(1), prefix_at=PrefixAt("one", TURN))
    engine.core.receive(GATEWAY, again, (), 0.0)
    assert engine.core._handovers.pulls.is_idle


def test_a_peer_that_is_silent_costs_no_more_than_computing(engine: VirtualEngine, make_spec: MakeSpec):
    pull = begin(engine, next(turns(make_spec, "a", 1)))
    deadline = engine.core.next_deadline()
    assert deadline == pytest.approx(0.1)  # what a load may take at least
    effects = engine.core.expire(deadline)
    assert [effect.message for effect in effects if isinstance(effect, Send) and effect.to == "one"] == [
        Abort(pull.transfer, "it takes too long")
    ]
    assert computes_from(engine, deadline) == 0
    late = engine.core.receive("one", reserve_for(engine, pull), (), deadline)
    assert [type(effect.message) for effect in late if isinstance(effect, Send)] == [Declined]


def reserve_for(engine: VirtualEngine, pull: Pull) -> Reserve:
    mesh = VirtualMesh()
    one = mesh.add("one", num_blocks=64, tier=VirtualTier(), pulls=1)
    one.tier.contents |= {digest: {} for digest in pull.digests}
    [reserve] = [
        effect.message
        for effect in one.core.receive("two", pull, (), 0.0)
        if isinstance(effect, Send) and isinstance(effect.message, Reserve)
    ]
    return reserve


def test_a_peer_that_would_send_no_whole_block_is_declined(engine: VirtualEngine, make_spec: MakeSpec):
    pull = begin(engine, next(turns(make_spec, "a", 1)))
    nothing = replace(reserve_for(engine, pull), num_tokens=BLOCK_SIZE - 1)
    effects = engine.core.receive("one", nothing, (), 0.0)
    effects += engine.core.receive("one", Commit(pull.transfer, [], 0, 0.0, None), (), 0.0)
    answers = [effect.message for effect in effects if isinstance(effect, Send) and effect.to == "one"]
    assert isinstance(answers[0], Declined)
    assert computes_from(engine) == 0
    assert of_peers(engine) == (0, 1)


def test_what_is_being_copied_is_not_reused_when_its_request_ends(make_spec: MakeSpec):
    mesh, jobs = VirtualMesh(), list[tuple[str, ImportBlocks]]()
    _, two = pair(mesh)
    first, second = turns(make_spec, "a", 2)
    ask(mesh, "one", first)
    copy = mesh._importing

    def later(name: str, job: ImportBlocks) -> Callable[[], None]:
        jobs.append((name, job))
        return lambda: None

    mesh._importing = later  # type: ignore[method-assign]
    mesh.submit("two", second, prefix_at=PrefixAt("one", TURN))
    while not jobs:
        mesh.step()
    mesh.deliver(GATEWAY, "two", Cancel(second.id, Epoch(1)))
    pool = two.core._services["tiny"].pool
    assert pool.num_free == 64 - (len(second.prompt) - 1) // BLOCK_SIZE
    copy(*jobs[0])()
    assert pool.num_free == 64
    mesh.settle()


def test_engines_give_only_what_was_computed_for_the_same_salt(make_spec: MakeSpec):
    mesh = VirtualMesh()
    _, two = pair(mesh)
    spec = next(turns(make_spec, "a", 1))
    ask(mesh, "one", spec)
    other = make_spec("other", prompt=list(spec.prompt), max_tokens=4, cache_salt="another tenant")
    ask(mesh, "two", other, "one")
    assert of_peers(two) == (0, 1)
    same = make_spec("same", prompt=list(spec.prompt), max_tokens=4)
    mesh.now += 10.0
    mesh.submit("two", same, prefix_at=PrefixAt("one", TURN))
    mesh.settle()
    assert of_peers(two)[0] == (TURN - 1) // BLOCK_SIZE


def test_without_leave_nothing_is_pulled(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("one", num_blocks=64, tier=VirtualTier(), pulls=1)
    two = mesh.add("two", num_blocks=64, tier=VirtualTier())
    spec = next(turns(make_spec, "a", 1))
    ask(mesh, "one", spec)
    ask(mesh, "two", make_spec("same", prompt=list(spec.prompt), max_tokens=4), "one")
    assert [tier.name for tier in two.core.status(0.0).tiers] == ["host"]
