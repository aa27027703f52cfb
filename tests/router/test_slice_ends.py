"""What an engine gives back at the end of a slice goes on, with its tokens, in another round."""

from mesh.messages import Epoch, RefusalCode, SlicesEnded, SubmitBatch
from router.effects import Send
from tests.router.cluster import M0, M1
from tests.router.test_dispatcher import STOP, World


def batches(effects):
    return [(e.to, e.message.submits) for e in effects if isinstance(e, Send) and isinstance(e.message, SubmitBatch)]


def ended(*requests, attempt=0):
    return SlicesEnded([(request, Epoch(attempt)) for request in requests])


def test_one_round_sends_a_batch_as_one_message():
    world = World(M0, M1, policy="slices")
    ((_, [first]),) = batches(world.submit("r0", slo_ttft_s=50.0))
    assert (first.spec.id, first.slice_tokens) == ("r0", 128)
    world.accept(M0, "r0")
    for name in ("r1", "r2", "r3"):
        assert batches(world.submit(name, slo_ttft_s=50.0)) == []
    ((engine, submits),) = batches(world.wait(3.0))
    assert [submit.spec.id for submit in submits] == ["r1", "r2", "r3"]
    assert engine == M1


def test_a_request_comes_back_with_its_tokens():
    world = World(M0, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.accept(M0, "r0")
    world.tokens(M0, 0, 7, 8, id_="r0")
    assert batches(world.receive(M0, ended("r0"))) == []
    ((_, [again]),) = batches(world.wait(3.0))
    assert (again.spec.generated, again.epoch) == ([7, 8], Epoch(1))
    world.accept(M0, "r0", attempt=1)
    world.tokens(M0, 2, 9, id_="r0", epoch=(1, 0), finish=STOP)
    assert world.dispatcher.num_requests == 0


def test_the_end_of_an_earlier_slice_that_comes_late_changes_nothing():
    world = World(M0, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.accept(M0, "r0")
    world.tokens(M0, 0, 7, id_="r0")
    world.receive(M0, ended("r0"))
    world.wait(3.0)
    world.receive(M0, ended("r0"))
    assert world.dispatcher.num_waiting == 0


def test_what_is_refused_leaves_its_batch():
    world = World(M0, M1, policy="slices")
    world.submit("r0", slo_ttft_s=50.0)
    world.refuse(M0, "r0", code=RefusalCode.FULL)
    assert world.dispatcher._placing.policy._loads.of(M0) == 0.0
    ((engine, _),) = batches(world.wait(3.0))
    assert engine in (M0, M1)


def test_an_engine_that_dies_gives_its_load_back():
    world = World(M0, M1, policy="slices", lease_s=1.0)
    world.submit("r0", slo_ttft_s=50.0)
    policy = world.dispatcher._placing.policy
    assert policy._loads.of(M0) > 0
    world.now = 0.9
    world.status(M1)
    world.wait(0.5)
    assert policy._loads.of(M0) == 0.0
