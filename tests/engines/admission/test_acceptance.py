"""Whom an engine takes: services, memory, queues, and slack for prefills between decodes."""

import pytest

from engines.admission.acceptance import Admission
from engines.scheduling.backlog import Backlog
from mesh.wire.control import PrefillMode
from mesh.wire.requests import Epoch, RefusalCode, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import BLOCK_SIZE, OTHER, SERVICE

NUM_BLOCKS = 8


@pytest.fixture
def engine() -> VirtualEngine:
    return VirtualMesh().add("only", num_blocks=NUM_BLOCKS, max_waiting=2)


def refusal(engine: VirtualEngine, message: Submit) -> RefusalCode | None:
    core = engine.core
    backlog: Backlog = core._backlog
    found = Admission(core._services, backlog, max_waiting=2).refusal(message, None, 0.0)
    return None if found is None else found[0]


def test_a_request_that_fits_is_taken(engine: VirtualEngine, make_spec: MakeSpec):
    assert refusal(engine, Submit(make_spec("r"), Epoch(1))) is None


def test_a_service_that_is_not_here_is_refused(engine: VirtualEngine, make_spec: MakeSpec):
    assert refusal(engine, Submit(make_spec("r", service=OTHER), Epoch(1))) is RefusalCode.UNKNOWN_SERVICE


def test_a_service_that_is_being_unloaded_takes_nothing(engine: VirtualEngine, make_spec: MakeSpec):
    engine.core._services[SERVICE].is_leaving = True
    assert refusal(engine, Submit(make_spec("r"), Epoch(1))) is RefusalCode.DRAINING


@pytest.mark.parametrize(("more", "code"), [(-1, None), (0, RefusalCode.NO_MEMORY)])
def test_a_prompt_must_fit_the_pool_with_its_first_token(
    engine: VirtualEngine, make_spec: MakeSpec, more: int, code: RefusalCode | None
):
    num_tokens = NUM_BLOCKS * BLOCK_SIZE + more
    assert refusal(engine, Submit(make_spec("r", num_tokens), Epoch(1))) is code


def test_no_more_wait_than_may(engine: VirtualEngine, make_spec: MakeSpec):
    message = Submit(make_spec("last"), Epoch(1))
    for name in ("a", "b"):
        assert refusal(engine, message) is None
        engine.core.receive("gateway", Submit(make_spec(name), Epoch(1)), (), 0.0)
    assert refusal(engine, message) is RefusalCode.FULL


def decoding(make_spec: MakeSpec, slo_tpot_s: float) -> VirtualEngine:
    """An engine with a request that decodes, under that promise."""
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=NUM_BLOCKS)
    mesh.submit("only", make_spec("r", max_tokens=400, slo_tpot_s=slo_tpot_s))
    while not engine.core._services[SERVICE].decoding():
        assert mesh.step()
    return engine


@pytest.mark.parametrize(("slo_tpot_s", "code"), [(1000.0, None), (1e-9, RefusalCode.NO_SLACK)])
def test_a_prefill_between_decodes_needs_slack(make_spec: MakeSpec, slo_tpot_s: float, code: RefusalCode | None):
    engine = decoding(make_spec, slo_tpot_s)
    assert refusal(engine, Submit(make_spec("new"), Epoch(1), multiplex=True)) is code
    assert refusal(engine, Submit(make_spec("new"), Epoch(1))) is None, "else it waits for its turn"


@pytest.mark.parametrize(("least", "code"), [(400, None), (1, RefusalCode.NO_SLACK)])
def test_a_prefill_in_foreseen_slack_needs_what_decodes_will_save(
    make_spec: MakeSpec, least: int, code: RefusalCode | None
):
    """The decode has saved next to nothing by now. It can make up for the prompt if many tokens are sure to come."""
    mesh = VirtualMesh()
    engine = mesh.add("only", num_blocks=4 * NUM_BLOCKS)
    mesh.submit("only", make_spec("r", max_tokens=400, slo_tpot_s=0.01, expected=(400,), at_least=(least,)))
    while not engine.core._services[SERVICE].decoding():
        assert mesh.step()
    message = Submit(make_spec("new", 2 * NUM_BLOCKS), Epoch(1), multiplex=True, prefill=PrefillMode.FORESEEN)
    assert refusal(engine, message) is code


def test_a_prefill_between_decodes_needs_blocks_now(engine: VirtualEngine, make_spec: MakeSpec):
    pool = engine.core._services[SERVICE].pool
    blocks = pool.allocate(NUM_BLOCKS - 1)
    message = Submit(make_spec("r", 2 * BLOCK_SIZE), Epoch(1), multiplex=True)
    assert refusal(engine, message) is RefusalCode.NO_MEMORY
    pool.release(blocks)
    assert refusal(engine, message) is None
