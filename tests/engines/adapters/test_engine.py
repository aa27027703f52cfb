"""Engine cores whose requests have adapters: on a virtual network, with an executor whose tokens depend on them."""

from engines.adapters.places import AdapterSizes
from engines.adapters.room import MOST_HINTS, MOST_LOADING
from kvtransfer.protocol import Send
from mesh.wire.adapters import ExpectAdapter, LoraAdapter
from mesh.wire.control import Migrate, Role
from mesh.wire.requests import Cancel, Epoch, Failed, FailureCode, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, SERVICE, SHAPE, continuation
from tests.seeds import each_seed

SEEDS = range(15)
WEIGHTS = 100
BYTES = AdapterSizes(SHAPE.dtype).of(LoraAdapter("", "", "", WEIGHTS))


def adapter(name: str, num_weights: int = WEIGHTS, digest: str = "1") -> LoraAdapter:
    return LoraAdapter(name, f"/adapters/{name}", digest, num_weights)


def spec(make_spec: MakeSpec, request: str, name: str | None, **overrides: object):
    return make_spec(request, adapter=None if name is None else adapter(name), **overrides)


def held(engine: VirtualEngine) -> set[str]:
    return {key.partition("@")[0] for key in engine.executor.adapters}


def expected(mesh: VirtualMesh, made, num_tokens: int = 4) -> bool:
    key = "" if made.adapter is None else made.adapter.key
    return mesh.streams[made.id] == continuation(made.prompt, num_tokens, key)


@each_seed(SEEDS)
def test_each_request_is_computed_with_its_own_adapter(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    mesh.add("only", num_blocks=64, adapter_memory=8 * BYTES)
    specs = [spec(make_spec, f"r{i}", [None, "a", "b", "c"][i % 4]) for i in range(8)]
    for one in specs:
        mesh.submit("only", one)
    mesh.settle()
    assert all(expected(mesh, one) for one in specs)


@each_seed(SEEDS)
def test_more_adapters_than_there_is_memory_for_take_turns(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    engine = mesh.add("only", num_blocks=64, adapter_memory=2 * BYTES, max_waiting=32)
    specs = [spec(make_spec, f"r{i}", f"adapter-{i % 5}", max_tokens=6) for i in range(15)]
    for one in specs:
        mesh.submit("only", one)
        mesh.step()
    mesh.settle()
    assert all(expected(mesh, one, 6) for one in specs)
    assert len(held(engine)) <= 2


@each_seed(SEEDS)
def test_one_that_is_always_used_gives_way_to_one_that_waits(seed: int, make_spec: MakeSpec):
    mesh, streams = VirtualMesh(seed), 0
    mesh.add("only", num_blocks=64, adapter_memory=BYTES, max_waiting=64)
    for i in range(6):
        mesh.submit("only", spec(make_spec, f"busy-{i}", "busy", max_tokens=8))
    late = spec(make_spec, "late", "late")
    mesh.submit("only", late)
    while "late" not in mesh.finished:
        mesh.step()
        if len(mesh.finished) > streams:  # another follows each that ends
            streams = len(mesh.finished)
            mesh.submit("only", spec(make_spec, f"more-{streams}", "busy", max_tokens=8))
        assert streams < 20, "it never has its turn"
    assert expected(mesh, late)
    mesh.settle()


def test_what_nobody_uses_is_dropped_the_longest_unused_first(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64, adapter_memory=2 * BYTES)
    for number, name in enumerate(("a", "b", "a", "c")):
        mesh.submit("only", spec(make_spec, f"r{number}", name))
        mesh.settle()
    assert held(engine) == {"a", "c"}


def test_prefixes_of_other_adapters_are_not_found(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64, adapter_memory=4 * BYTES)
    for number, name in enumerate(("a", None, "b", "a")):
        mesh.submit("only", spec(make_spec, f"r{number}", name, num_prompt=16, first=5))
        mesh.settle()
    pool = engine.core._services[SERVICE].pool
    prompt = list(range(5, 21))
    for name in ("a", "b"):
        blocks = pool.match(prompt, 15, adapter(name).key.encode())
        assert len(blocks) == 3
        pool.release(blocks)
    assert not pool.match(prompt, 15, adapter("a", digest="2").key.encode()), "another file of that name"


@each_seed(SEEDS)
def test_handed_over_and_moved_requests_keep_their_adapter(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    mesh.add("prefill", Role.PREFILL, num_blocks=64, adapter_memory=4 * BYTES)
    for name in ("one", "two"):
        mesh.add(name, Role.DECODE, num_blocks=64, adapter_memory=4 * BYTES)
    specs = [spec(make_spec, f"r{i}", ["a", "b", None][i % 3], max_tokens=12) for i in range(6)]
    for one in specs:
        mesh.submit("prefill", one, decode="one")
    for i in range(200):
        mesh.step()
        if i % 20 == 19:
            mesh.deliver(GATEWAY, "one", Migrate(f"r{i // 20 % 6}", "two", "test"))
    mesh.settle()
    assert all(expected(mesh, one, 12) for one in specs)


@each_seed(SEEDS)
def test_requests_that_end_while_they_wait_leave_nothing_behind(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    engine = mesh.add("only", num_blocks=64, adapter_memory=BYTES)
    for i in range(9):
        mesh.submit("only", spec(make_spec, f"r{i}", f"adapter-{i % 3}"))
    for i in range(0, 9, 2):
        mesh.step()
        mesh.deliver(GATEWAY, "only", Cancel(f"r{i}", Epoch(1)))
    mesh.settle()
    assert engine.core.is_idle
    assert {f"r{i}" for i in range(1, 9, 2)} <= mesh.finished.keys()


def test_requests_of_one_that_cannot_be_loaded_fail(make_spec: MakeSpec):
    mesh = VirtualMesh(spoil=lambda: True)
    mesh.add("only", num_blocks=64, adapter_memory=4 * BYTES)
    for request in ("r", "again"):  # the second one is told at once
        mesh.submit("only", spec(make_spec, request, "broken"))
        mesh.settle()
    failed = [answer for answer in mesh.answers if isinstance(answer, Failed)]
    assert [(one.request, one.code, one.reason) for one in failed] == [
        (request, FailureCode.ADAPTER, "its file is damaged") for request in ("r", "again")
    ]


def test_one_that_is_larger_than_all_memory_is_refused(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64, adapter_memory=BYTES)
    large = make_spec("r", adapter=adapter("large", WEIGHTS + 1))
    [effect] = [one for one in _submit(engine, large) if isinstance(one, Send)]
    assert effect.message.reason.startswith("adapter large takes 0.00 MiB, beyond adapter_memory")


def _submit(engine: VirtualEngine, made):
    return engine.core.receive(GATEWAY, Submit(made, Epoch(1)), (), 0.0)


def test_an_engine_without_adapter_memory_has_none(make_spec: MakeSpec):
    engine = VirtualMesh().add("only", num_blocks=64)
    [effect] = [one for one in _submit(engine, spec(make_spec, "r", "a")) if isinstance(one, Send)]
    assert effect.message.code is FailureCode.ADAPTER


def test_hints_are_bounded_and_load_few_at_a_time():
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64, adapter_memory=1000 * BYTES)
    for number in range(600):
        mesh.deliver(GATEWAY, "only", ExpectAdapter(SERVICE, adapter(str(number))))
    assert len(mesh._copies) == MOST_LOADING
    mesh.settle()
    assert len(held(engine)) == MOST_LOADING + MOST_HINTS
