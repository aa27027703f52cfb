"""What an engine says of itself."""

from engines.status import starting_status
from mesh.topology.schema import EngineSpec
from mesh.wire.control import Drain, ProcessState, Role
from mesh.wire.requests import PRIORITY_BATCH, Epoch, Submit
from tests.engines.conftest import MakeSpec
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_engine import VirtualEngine
from tests.engines.virtual_memory import GATEWAY, OTHER, SERVICE


def with_requests(make_spec: MakeSpec, *specs: dict[str, object]) -> VirtualEngine:
    engine = VirtualMesh().add("only", services=(SERVICE, OTHER))
    for number, fields in enumerate(specs):
        engine.core.receive(GATEWAY, Submit(make_spec(f"r{number}", **fields), Epoch(1)), (), 0.0)
    return engine


def test_statuses_are_numbered_and_take_away_what_is_news(make_spec: MakeSpec):
    engine = with_requests(make_spec, {})
    assert engine.core.has_news
    first, second = engine.core.status(0.0), engine.core.status(0.0)
    assert second.seq == first.seq + 1
    assert not engine.core.has_news


def test_what_waits_and_what_runs_is_counted(make_spec: MakeSpec):
    engine = with_requests(make_spec, {"num_prompt": 8}, {"num_prompt": 5})
    status = engine.core.status(0.0)
    assert (status.num_waiting, status.num_running, status.num_tokens) == (2, 0, 13)
    engine.core.next_step(0.0)
    assert engine.core.status(0.0).num_running >= 1


def test_requests_without_a_promise_are_in_nobodys_way(make_spec: MakeSpec):
    engine = with_requests(make_spec, {"priority": PRIORITY_BATCH, "slo_ttft_s": 1e6, "slo_tpot_s": 1e6})
    status = engine.core.status(0.0)
    assert (status.num_waiting, status.num_tokens, status.prefill_waiting_s) == (0, 0, 0.0)
    assert [one.fillers_waiting for one in status.services if one.name == SERVICE] == [1]


def test_nothing_that_decodes_has_no_slack(make_spec: MakeSpec):
    status = with_requests(make_spec).core.status(0.0)
    assert (status.min_slack_s, status.min_tpot_slo_s, status.foreseen) == (None, None, [])


def test_answers_are_foreseen_where_somebody_expects_their_lengths(make_spec: MakeSpec):
    plain = with_requests(make_spec, {}).core.status(0.0)
    assert [one.demand for one in plain.services] == [None, None]
    engine = with_requests(make_spec, {"expected": (2, 3, 4)})
    away = Submit(make_spec("away", expected=(2, 3, 4)), Epoch(1), decode_engine="another")
    engine.core.receive(GATEWAY, away, (), 0.0)
    demands = {one.name: one.demand for one in engine.core.status(0.0).services}
    num_requests = {name: demand and demand.num_requests for name, demand in demands.items()}
    assert num_requests == {SERVICE: 1, OTHER: None}, "the other request is to decode elsewhere"


def test_an_engine_that_drains_says_so(make_spec: MakeSpec):
    engine = with_requests(make_spec)
    engine.core.receive("cli", Drain(), (), 0.0)
    assert engine.core.status(0.0).state is ProcessState.DRAINING


def test_an_engine_that_starts_serves_nothing_yet():
    status = starting_status(EngineSpec("e", Role.DECODE, ("chat",)))
    assert (status.state, status.role, status.services, status.seq) == (ProcessState.STARTING, Role.DECODE, [], 0)
