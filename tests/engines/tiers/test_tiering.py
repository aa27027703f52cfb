"""What leaves a pool comes back from a tier: answers stay the same, whatever goes wrong."""

import random
from collections.abc import Iterator

import pytest

from engines.effects import LoadBlocks, StopLoading, StoreBlocks
from engines.memory.block_digests import digests_of
from engines.tiers.tiering import QUIET_S
from kvtransfer.protocol import Send
from kvtransfer.tiers.tier import BEFORE_S, BlocksLoaded, BlocksStored, Tier, TierUse
from mesh.topology.schema import Scheduling
from mesh.wire.control import Role
from mesh.wire.messages import Message
from mesh.wire.requests import Brought, Cancel, Delta, Epoch, RequestSpec, StepTokens, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine, VirtualTier
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, OTHER, SERVICE, continuation
from tests.seeds import each_seed

SEEDS = 6
DISCIPLINES = (Scheduling.SLO, Scheduling.DB, Scheduling.FCFS, Scheduling.ROUND_ROBIN)


def conversation(make_spec: MakeSpec, name: str, turns: int) -> Iterator[RequestSpec]:
    """Requests of a client, each of which begins with the one before and its answer."""
    prompt, first = list[int](), 10 + sum(name.encode())
    for turn in range(turns):
        prompt = [*prompt, *range(first + 100 * turn, first + 100 * turn + 9)]
        yield make_spec(f"{name}-{turn}", prompt=list(prompt), max_tokens=4)
        prompt += continuation(prompt, 4)


def ask(mesh: VirtualMesh, engine: str, spec: RequestSpec) -> None:
    mesh.submit(engine, spec)
    mesh.settle()
    assert mesh.streams[spec.id] == continuation(spec.prompt, 4), spec.id


def loaded(engine: VirtualEngine) -> int:
    return sum(tier.loaded_blocks for tier in engine.core.status(0.0).tiers)


@each_seed(SEEDS)
def test_turns_of_more_conversations_than_the_pool_holds(seed: int, make_spec: MakeSpec):
    mesh, dice = VirtualMesh(seed), random.Random(seed)
    engine = mesh.add("only", num_blocks=16, tier=VirtualTier(), services=(SERVICE, OTHER))
    turns = [list(conversation(make_spec, name, 4)) for name in "abcdef"]
    for turn in range(4):
        for spec in dice.sample([one[turn] for one in turns], len(turns)):
            ask(mesh, "only", spec)
    assert loaded(engine) > 10


@each_seed(SEEDS)
def test_many_at_once_with_copies_that_fail(seed: int, make_spec: MakeSpec):
    dice = random.Random(seed)
    mesh = VirtualMesh(seed, spoil=lambda: dice.random() < 0.2)
    options = {"num_blocks": 24, "tier": VirtualTier(), "scheduling": DISCIPLINES[seed // 3 % len(DISCIPLINES)]}
    mesh.add("one", slice_tokens=2 if seed % 3 else None, **options)
    tier = mesh.add("two", **options).tier
    specs = [spec for name in "abcd" for spec in conversation(make_spec, name, 4)]
    for number, spec in enumerate(sorted(specs, key=lambda spec: len(spec.prompt))):
        mesh.submit("one" if dice.random() < 0.5 else "two", spec)
        for _ in range(dice.randrange(12)):
            mesh.step()
        if number % 4 == 3:
            tier.contents.pop(next(iter(tier.contents), b""), None)  # evicted by others
    mesh.settle()
    for spec in specs:
        assert mesh.streams[spec.id] == continuation(spec.prompt, 4), spec.id


def test_another_engine_of_the_host_and_one_that_starts_again_take_what_is_there(make_spec: MakeSpec):
    mesh, tier = VirtualMesh(), VirtualTier()
    mesh.add("one", tier=tier)
    first, second, third = conversation(make_spec, "a", 3)
    ask(mesh, "one", first)
    two = mesh.add("two", tier=tier)
    ask(mesh, "two", second)
    assert loaded(two) == (len(first.prompt) + 3) // BLOCK_SIZE  # of its answer, all but the last token was computed
    mesh.add("one", tier=tier)
    ask(mesh, "one", third)
    assert loaded(mesh.engines["one"]) == (len(second.prompt) + 3) // BLOCK_SIZE


def test_the_first_token_tells_what_came_from_tiers_and_the_wait_for_it(make_spec: MakeSpec):
    told: list[Delta] = []

    def listen(_sender: str, _to: str, message: Message) -> bool:
        told.extend(message.deltas if isinstance(message, StepTokens) else ())
        return False

    mesh, tier = VirtualMesh(lose=listen), VirtualTier()
    mesh.add("one", tier=tier)
    first, second = conversation(make_spec, "a", 2)
    ask(mesh, "one", first)
    two = mesh.add("two", tier=tier)
    ask(mesh, "two", second)
    [brought] = [delta.brought for delta in told if delta.brought is not None]
    assert (brought.num_tokens, brought.peer, brought.tiers) == (loaded(two) * BLOCK_SIZE, None, ["host"])


def test_the_first_token_tells_of_a_wait_for_nothing(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    load = begin(engine, spec)
    engine.core.blocks_loaded(load.ticket, BlocksLoaded(0, {Tier.HOST: TierUse(num_faults=1)}), 0.5)
    told: list[Delta] = []
    while not told:
        batch, _ = engine.core.next_batch(0.5)
        assert batch is not None
        for effect in engine.core.finish_step(engine.executor.execute(batch), 0.6):
            if isinstance(effect, Send) and isinstance(effect.message, StepTokens):
                told += effect.message.deltas
    assert told[0].brought == Brought(0, 0.5, None, [])


def test_a_prefill_engine_loads_and_hands_over(make_spec: MakeSpec):
    mesh, tier = VirtualMesh(), VirtualTier()
    mesh.add("prefill", Role.PREFILL, tier=tier)
    mesh.add("decode", Role.DECODE, tier=tier)
    specs = list(conversation(make_spec, "a", 3))
    for spec in specs:
        mesh.submit("prefill", spec, decode="decode")
        mesh.settle()
        assert mesh.streams[spec.id] == continuation(spec.prompt, 4)
    assert loaded(mesh.engines["prefill"]) > 0  # what was decoded elsewhere


def test_the_engine_that_takes_a_request_over_tells_the_same_with_the_first_token(make_spec: MakeSpec):
    told: list[tuple[str, Delta]] = []

    def listen(sender: str, _to: str, message: Message) -> bool:
        told.extend((sender, delta) for delta in message.deltas) if isinstance(message, StepTokens) else None
        return False

    mesh, tier = VirtualMesh(lose=listen), VirtualTier()
    mesh.add("prefill", Role.PREFILL, tier=tier)
    mesh.add("decode", Role.DECODE, tier=tier)
    for spec in conversation(make_spec, "a", 2):
        mesh.submit("prefill", spec, decode="decode")
        mesh.settle()
    firsts = {sender: delta for sender, delta in told if delta.request == spec.id and not delta.offset}
    assert firsts["prefill"].num_cached_tokens > 0
    assert firsts["decode"].num_cached_tokens == firsts["prefill"].num_cached_tokens
    assert firsts["decode"].brought == firsts["prefill"].brought


@pytest.fixture
def engine(make_spec: MakeSpec) -> VirtualEngine:
    """One whose tier has the first turn of a conversation, and its pool nothing."""
    mesh, tier = VirtualMesh(), VirtualTier()
    mesh.add("before", tier=tier)
    ask(mesh, "before", next(conversation(make_spec, "a", 1)))
    return mesh.add("after", tier=tier)


def begin(engine: VirtualEngine, spec: RequestSpec) -> LoadBlocks:
    engine.core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.0)
    batch, effects = engine.core.next_batch(0.0)
    assert batch is None
    [load] = [effect for effect in effects if isinstance(effect, LoadBlocks)]
    return load


def test_a_request_counts_while_it_is_loaded(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    load = begin(engine, spec)
    status = engine.core.status(0.0)
    assert (status.num_running, status.num_waiting) == (1, 0)
    left = len(spec.prompt) - len(load.blocks) * BLOCK_SIZE
    assert status.prefill_remaining_s == pytest.approx(left * 0.001)
    assert not engine.core.is_idle


def test_what_did_not_come_is_computed(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    load = begin(engine, spec)
    engine.core.blocks_loaded(load.ticket, BlocksLoaded(1, {Tier.HOST: TierUse(1, 32, 0.001, num_faults=1)}), 0.0)
    batch, _ = engine.core.next_batch(0.0)
    assert batch is not None
    assert batch.chunks[0].start == BLOCK_SIZE
    [tier] = engine.core.status(0.0).tiers
    assert (tier.loaded_blocks, tier.faults) == (1, 1)


def test_a_load_that_takes_too_long_is_stopped_and_may_come_late(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    load = begin(engine, spec)
    deadline = engine.core.next_deadline()
    assert deadline is not None
    assert engine.core.expire(deadline - 0.01) == []
    assert StopLoading(load.ticket, SERVICE) in engine.core.expire(deadline)
    batch, _ = engine.core.next_batch(deadline)
    assert batch is not None
    assert batch.chunks[0].start == 0
    engine.core.blocks_loaded(load.ticket, BlocksLoaded(2, {}), deadline)
    assert engine.core.status(deadline).loads_stopped_total == 1
    engine.core.check_invariants()


def test_nothing_is_loaded_behind_a_load_that_is_stuck(make_spec: MakeSpec):
    """As where a disk does not answer any more: who waits for it would wait in vain."""
    mesh, tier = VirtualMesh(), VirtualTier()
    mesh.add("before", tier=tier)
    firsts, seconds = zip(*[conversation(make_spec, name, 2) for name in "abc"], strict=True)
    for first in firsts:
        ask(mesh, "before", first)
    engine = mesh.add("after", tier=tier)
    core, load = engine.core, begin(engine, seconds[0])
    deadline = core.next_deadline()
    assert deadline is not None
    core.expire(deadline)
    assert core.status(deadline).services[0].tier_tokens == 0
    core.receive(GATEWAY, Submit(seconds[1], Epoch(1)), (), deadline)
    batch, effects = core.next_batch(deadline)
    assert batch is not None
    assert not [effect for effect in effects if isinstance(effect, LoadBlocks)]
    core.finish_step(engine.executor.execute(batch), deadline)
    core.blocks_loaded(load.ticket, BlocksLoaded(0, {}), deadline)
    assert core.status(deadline).services[0].tier_tokens > 0
    core.receive(GATEWAY, Submit(seconds[2], Epoch(1)), (), deadline)
    assert [effect for effect in core.next_batch(deadline)[1] if isinstance(effect, LoadBlocks)]


def test_a_cancelled_request_leaves_its_blocks_at_once(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    load = begin(engine, spec)
    effects = engine.core.receive(GATEWAY, Cancel(spec.id, Epoch(1)), (), 0.0)
    assert StopLoading(load.ticket, SERVICE) in effects
    engine.core.check_invariants()
    assert engine.core.is_idle
    engine.core.blocks_loaded(load.ticket, BlocksLoaded(2, {}), 0.0)
    engine.core.check_invariants()


def test_computing_that_is_sooner_than_loading_is_chosen(engine: VirtualEngine, make_spec: MakeSpec):
    *_, spec = conversation(make_spec, "a", 2)
    slow = {Tier.HOST: TierUse(1, 32, 10.0)}
    for _ in range(20):
        engine.core.blocks_loaded(0, BlocksLoaded(1, slow), 0.0)
    engine.core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.0)
    batch, _ = engine.core.next_batch(0.0)
    assert batch is not None
    assert batch.chunks[0].start == 0


def test_nothing_is_stored_beside_what_runs_while_the_pool_has_room(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64, tier=VirtualTier())
    engine.core.receive(GATEWAY, Submit(make_spec("a", num_prompt=24, max_tokens=8), Epoch(1)), (), 0.0)
    stores = []
    while (batch := engine.core.next_batch(0.0)[0]) is not None:
        effects = engine.core.finish_step(engine.executor.execute(batch), 0.0)
        stores.append(any(isinstance(effect, StoreBlocks) for effect in effects))
    assert not any(stores)
    assert engine.core.next_deadline() == pytest.approx(QUIET_S)
    assert not engine.core.expire(0.9 * QUIET_S)
    engine.core.receive(GATEWAY, Submit(make_spec("b", num_prompt=4, max_tokens=1), Epoch(1)), (), 0.9 * QUIET_S)
    assert engine.core.next_deadline() is None  # it is not quiet any more
    batch, _ = engine.core.next_batch(QUIET_S)
    assert batch is not None
    effects = engine.core.finish_step(engine.executor.execute(batch), QUIET_S)
    assert not any(isinstance(effect, StoreBlocks) for effect in effects)
    [store] = engine.core.expire(2 * QUIET_S)
    assert isinstance(store, StoreBlocks)
    assert engine.core.next_deadline() is None


def test_a_small_tier_is_filled_by_parts(make_spec: MakeSpec):
    """A store that is larger than the tier would not be kept at all."""
    mesh, tier = VirtualMesh(), VirtualTier()
    tier.tiers = {Tier.HOST: 8 * 32, Tier.DISK: 2**20}
    engine = mesh.add("only", tier=tier)
    engine.core.receive(GATEWAY, Submit(make_spec("a", num_prompt=24, max_tokens=1), Epoch(1)), (), 0.0)
    while (batch := engine.core.next_batch(0.0)[0]) is not None:
        engine.core.finish_step(engine.executor.execute(batch), 0.0)
    [store] = engine.core.expire(QUIET_S)
    assert isinstance(store, StoreBlocks)
    assert len(store.blocks) == 2


def test_of_what_is_stored_later_of_a_prefix_the_end_goes_first(make_spec: MakeSpec):
    """All blocks of a request count as used at once, though they are stored one after the other."""
    engine = VirtualMesh().add("only", num_blocks=64, tier=VirtualTier())
    first, second, _ = conversation(make_spec, "a", 3)
    kept = dict[bytes, float]()
    for spec, now in ((first, 0.0), (second, 1.0)):
        engine.core.receive(GATEWAY, Submit(spec, Epoch(1)), (), now)
        while (batch := engine.core.next_batch(now)[0]) is not None:
            engine.core.finish_step(engine.executor.execute(batch), now)
        [store] = engine.core.expire(now + QUIET_S)
        assert isinstance(store, StoreBlocks)
        kept |= dict(store.used)
        engine.core.stored(BlocksStored({}), now + QUIET_S)
    digests = list(digests_of(second.prompt, len(second.prompt), BLOCK_SIZE, second.prefix_salt))
    times = [kept[digest] for digest in digests]
    assert times[0] == 1.0 + QUIET_S
    assert times == sorted(times, reverse=True)


def test_what_is_stored_in_parts_counts_as_used_at_once(make_spec: MakeSpec):
    tier = VirtualTier()
    tier.tiers = {Tier.HOST: 8 * 32}
    engine = VirtualMesh().add("only", num_blocks=64, tier=tier)
    spec = make_spec("a", num_prompt=24, max_tokens=1)
    engine.core.receive(GATEWAY, Submit(spec, Epoch(1)), (), 0.0)
    while (batch := engine.core.next_batch(0.0)[0]) is not None:
        engine.core.finish_step(engine.executor.execute(batch), 0.0)
    [effect], used, num_stores = engine.core.expire(QUIET_S), list[tuple[bytes, float]](), 0
    while isinstance(effect, StoreBlocks):
        used += effect.used
        num_stores += 1
        effect = next(iter(engine.core.stored(BlocksStored({}), QUIET_S + num_stores)), None)
    assert num_stores > 2
    assert [used_at for _, used_at in used] == [QUIET_S - number * BEFORE_S for number in range(len(used))]


@pytest.mark.parametrize("are_lacking", [False, True])
def test_what_a_tier_lacks_is_stored_again_once_it_was_loaded(make_spec: MakeSpec, *, are_lacking: bool):
    """As after the key of a disk has changed, or where the disk was behind when the blocks were stored."""
    mesh, tier = VirtualMesh(), VirtualTier()
    first, second = conversation(make_spec, "a", 2)
    mesh.add("before", tier=tier)
    ask(mesh, "before", first)
    old = {*tier.contents}
    tier.lacking |= old if are_lacking else set()
    after = mesh.add("after", tier=tier)
    ask(mesh, "after", second)
    [status] = after.core.status(0.0).tiers
    assert (status.loaded_blocks, tier.lacking) == (len(old), set())
    assert status.stored_blocks == len(tier.contents) - (0 if are_lacking else len(old))


def test_gateways_are_told_of_tiers_from_which_it_is_worth_to_load(engine: VirtualEngine):
    [service] = engine.core.status(0.0).services
    assert service.tier_tokens == 2**20 // 32 * BLOCK_SIZE
    assert 0.0 < service.tier_token_s < 0.001
    for _ in range(20):
        engine.core.blocks_loaded(0, BlocksLoaded(1, {Tier.HOST: TierUse(1, 32, 10.0)}), 0.0)
    [service] = engine.core.status(0.0).services
    assert (service.tier_tokens, service.tier_token_s) == (0, 0.0)
