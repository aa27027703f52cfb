"""Engine cores whose prompts show images: on a virtual network, with an executor whose tokens depend on them."""

import msgspec
import pytest

from engines.admission.validity import fault_of
from mesh.wire.control import Migrate, Role
from mesh.wire.images import PlacedImage, TokenSpan
from mesh.wire.requests import RequestSpec
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import make_service
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE, VirtualMemory, continuation
from tests.seeds import each_seed

SEEDS = range(15)


def image(name: str, start: int = 2, tiles: int = 1) -> PlacedImage:
    """An image of ``tiles`` tiles, a text token before and after what the encoder makes of them."""
    pixels = name.encode() * 3 * tiles
    return PlacedImage(start, 2 * tiles + 2, [TokenSpan(1, 2 * tiles)], name.encode().ljust(16), tiles, 1, pixels)


def spec(make_spec: MakeSpec, request: str, *images: PlacedImage, **overrides: object) -> RequestSpec:
    return make_spec(request, **{"num_prompt": 16, "first": 5, "images": images, **overrides})


def expected(mesh: VirtualMesh, made: RequestSpec, num_tokens: int = 4) -> bool:
    return mesh.streams[made.id] == continuation(made.prompt, num_tokens, images=made.images)


def test_the_same_words_under_other_images_share_no_prefix(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=64)
    shown = [(image("a"),), (image("b"),), (), (image("a"), image("b", 8)), (image("b"), image("a", 8)), (image("a"),)]
    specs = [spec(make_spec, f"r{number}", *images) for number, images in enumerate(shown)]
    for one in specs:
        mesh.submit("only", one)
        mesh.settle()
    assert all(expected(mesh, one) for one in specs)
    assert len({tuple(mesh.streams[one.id]) for one in specs}) == 5
    pool = engine.core._services[SERVICE].pool
    for one in specs:
        blocks = pool.match(one.prompt, 15, one.prefix_salt)
        assert len(blocks) == 15 // BLOCK_SIZE, "and the same image is found again"
        pool.release(blocks)
    assert not pool.match(specs[0].prompt, 15, spec(make_spec, "x", image("c")).prefix_salt)


@each_seed(SEEDS)
def test_handed_over_and_moved_requests_keep_their_images(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    mesh.add("prefill", Role.PREFILL, num_blocks=64)
    for name in ("one", "two"):
        mesh.add(name, Role.DECODE, num_blocks=64)
    specs = [spec(make_spec, f"r{i}", image("abc"[i % 3]), max_tokens=12) for i in range(6)]
    for one in specs:
        mesh.submit("prefill", one, decode="one")
    for i in range(200):
        mesh.step()
        if i % 20 == 19:
            mesh.deliver(GATEWAY, "one", Migrate(f"r{i // 20 % 6}", "two", "test"))
    mesh.settle()
    assert all(expected(mesh, one, 12) for one in specs)


@each_seed(SEEDS)
def test_preempted_requests_are_computed_anew_with_their_images(seed: int, make_spec: MakeSpec):
    mesh = VirtualMesh(seed)
    engine = mesh.add("only", num_blocks=16)
    specs = [spec(make_spec, f"r{i}", image("abc"[i % 3]), max_tokens=12, priority=i) for i in range(6)]
    for one in specs:
        mesh.submit("only", one)
        for _ in range(12):
            mesh.step()
    mesh.settle()
    assert all(expected(mesh, one, 12) for one in specs)
    assert engine.core.is_idle


BAD = {
    "is not after the one before it": (image("a", 4), image("b", 2)),
    "or not in the prompt": (image("a", 13),),
    "has tiles of 2 pixels a side": (msgspec.structs.replace(image("a"), edge=2),),
    "in 6 bytes": (msgspec.structs.replace(image("a"), pixels=b"abcdef"),),
    "takes 1 tokens, and its tiles make 2": (msgspec.structs.replace(image("a"), spans=[TokenSpan(1, 1)]),),
    "spans that overlap": (msgspec.structs.replace(image("a", tiles=2), spans=[TokenSpan(0, 2), TokenSpan(1, 2)]),),
    "takes 2 tokens": (msgspec.structs.replace(image("a"), spans=[TokenSpan(3, 2)]),),
}


@pytest.mark.parametrize("problem", BAD)
def test_images_that_cannot_be_computed_are_refused_alone(make_spec: MakeSpec, problem: str):
    mesh = VirtualMesh()
    mesh.add("only", num_blocks=64)
    good, bad = spec(make_spec, "good", image("a")), spec(make_spec, "bad", *BAD[problem])
    mesh.submit("only", good)
    mesh.submit("only", bad)
    mesh.settle()
    assert expected(mesh, good)
    fault = fault_of(bad, make_service(SERVICE, "e", VirtualMemory(8)))
    assert fault is not None
    assert problem in fault
    assert not mesh.streams.get("bad")


def test_a_service_of_text_takes_none(make_spec: MakeSpec):
    service = make_service(SERVICE, "e", VirtualMemory(8))
    service.images = None
    assert fault_of(spec(make_spec, "r", image("a")), service) == "the service sees no images"
    assert fault_of(spec(make_spec, "r"), service) is None
