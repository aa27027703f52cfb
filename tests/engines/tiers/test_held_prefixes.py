"""What an engine tells gateways of prefixes: what its pools hold and its host's tiers have lost, and nothing else."""

from engines.tiers.held_prefixes import LOOKS, _Noted
from kvtransfer.protocol import Send
from mesh.prefix_names import prefix_names
from mesh.wire.prefixes import PrefixesHeld, TellPrefixes
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine, VirtualTier
from tests.engines.virtual_memory import SERVICE, continuation

LISTENER = "another-gateway"


def engine_of(mesh: VirtualMesh, num_blocks: int = 100) -> VirtualEngine:
    return mesh.add("only", num_blocks=num_blocks, tier=VirtualTier())


def ask(mesh: VirtualMesh, make_spec: MakeSpec, name: str, first: int, num_prompt: int = 130) -> list[int]:
    """Return the tokens whose KV is there at the end."""
    spec = make_spec(name, num_prompt=num_prompt, first=first, max_tokens=4)
    mesh.submit("only", spec)
    mesh.settle()
    return [*spec.prompt, *continuation(spec.prompt, 3)]


def subscribe(engine: VirtualEngine) -> PrefixesHeld:
    [send] = engine.core.receive(LISTENER, TellPrefixes(), (), 0.0)
    assert isinstance(send, Send)
    assert send.to == LISTENER
    assert isinstance(send.message, PrefixesHeld)
    return send.message


def news(engine: VirtualEngine) -> list[PrefixesHeld]:
    sent = engine.core.tiering.held.news()
    assert all(send.to == LISTENER for send in sent)
    return [send.message for send in sent if isinstance(send.message, PrefixesHeld)]


def test_who_asks_is_told_all_and_then_what_changes(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = engine_of(mesh)
    assert engine.core.status(0.0).prefix_news == 0
    one = prefix_names(ask(mesh, make_spec, "one", 0))
    assert news(engine) == []
    assert engine.core.status(0.0).prefix_news == 1
    held = subscribe(engine)
    assert (held.number, held.is_all) == (1, True)
    assert [tuple(of.kept) for of in held.services] == [one]
    two = prefix_names(ask(mesh, make_spec, "two", 1000))
    [told] = news(engine)
    assert (told.number, told.is_all) == (2, False)
    assert two[0] in told.services[0].kept
    assert news(engine) == []
    assert engine.core.status(0.0).prefix_news == 2


def test_what_the_pool_gave_up_is_told(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = engine_of(mesh, num_blocks=70)
    one = prefix_names(ask(mesh, make_spec, "one", 0))
    subscribe(engine)
    ask(mesh, make_spec, "two", 1000)
    three = prefix_names(ask(mesh, make_spec, "three", 2000))
    kept, gone = set(one), set[int]()
    for told in news(engine):
        for of in told.services:
            kept = (kept | set(of.kept)) - set(of.gone)
            gone |= set(of.gone)
    assert set(one) <= gone
    assert set(three) <= kept
    [all_of_it] = subscribe(engine).services
    assert set(all_of_it.kept) == kept
    assert all_of_it.service == SERVICE


def test_what_came_and_went_between_two_messages_is_not_said_to_be_there(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = engine_of(mesh, num_blocks=70)
    ask(mesh, make_spec, "first", 5000)
    subscribe(engine)
    one = prefix_names(ask(mesh, make_spec, "one", 0))
    for number in range(2):
        ask(mesh, make_spec, f"more-{number}", 1000 * (number + 1))
    [told] = news(engine)
    assert not set(one) & set(told.services[0].kept)


def test_a_process_that_is_lost_is_told_nothing(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = engine_of(mesh)
    ask(mesh, make_spec, "one", 0)
    subscribe(engine)
    engine.core.tiering.held.lose(LISTENER)
    ask(mesh, make_spec, "two", 1000)
    assert news(engine) == []


def test_salts_are_part_of_names(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = engine_of(mesh)
    spec = make_spec("salted", num_prompt=130, max_tokens=4, cache_salt="tenant")
    mesh.submit("only", spec)
    mesh.settle()
    [of] = subscribe(engine).services
    assert tuple(of.kept) == prefix_names(spec.prompt, spec.prefix_salt) != prefix_names(spec.prompt)


def lost(engine: VirtualEngine) -> set[int]:
    """Names that are told to be lost, by messages until nothing is new."""
    found = set[int]()
    while told := news(engine):
        found |= {name for one in told for of in one.services for name in of.lost}
    return found


def test_what_tiers_gave_up_is_told_once_the_pool_has_not_got_it(make_spec: MakeSpec):
    mesh, tier = VirtualMesh(), VirtualTier()
    engine = mesh.add("only", num_blocks=70, tier=tier)
    one = prefix_names(ask(mesh, make_spec, "one", 0))
    subscribe(engine)
    for number in range(2):
        ask(mesh, make_spec, f"more-{number}", 1000 * (number + 1))
    assert set(one) <= {name for told in news(engine) for of in told.services for name in of.gone}
    assert tier.contents
    assert not set(one) & lost(engine)  # they are in the tier
    tier.contents.clear()
    assert set(one) <= lost(engine)
    assert lost(engine) == set()
    ask(mesh, make_spec, "again", 0)
    assert set(one) <= {name for told in news(engine) for of in told.services for name in of.kept}


def test_tiers_are_looked_into_for_a_few_prefixes_with_each_status():
    tier, noted = VirtualTier(), _Noted()
    for number in range(3 * LOOKS):
        noted.below[bytes([number])] = number
        tier.contents[bytes([number])] = {}
    assert [noted.take_lost(tier) for _ in range(4)] == [[]] * 4
    tier.contents.clear()
    assert [len(noted.take_lost(tier)) for _ in range(4)] == [LOOKS, LOOKS, LOOKS, 0]
