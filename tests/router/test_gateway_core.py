"""A gateway's own life: what it says of itself and when, which policy it takes, and how it ends."""

from random import Random

import pytest

from mesh.effects import Follow, Publish, Rest
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import PolicySpec, Topology
from mesh.wire.control import Drain, Locate, PolicyChoice, ProcessState, RequestPlace, RequestPlaces, SetPolicy
from router.effects import DeclinePolicy, Fail, SendToEngine, TakePolicy, TellPlaces
from router.gateway_core import GatewayCore, GatewayParts
from router.generation import Draining
from router.history.tallies import Tallies
from router.history.timelines import Timelines
from router.policies.in_force import PolicyInForce
from router.requests.dispatcher import Dispatcher
from router.requests.limits import DispatchLimits
from router.view.monitor import Monitor
from tests.conftest import DEFAULT_TOPOLOGY
from tests.router.cluster import M0, make_spec, make_status, sender_of

LIMITS = DispatchLimits(8, 8, reply_s=1.0)


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load(DEFAULT_TOPOLOGY)


def core_of(topology) -> GatewayCore:
    policy, monitor, timelines = PolicyInForce(PolicySpec(), Random(0), 0.0), Monitor(100.0), Timelines()
    dispatcher = Dispatcher(policy.policy, monitor, LIMITS, timelines)
    name = topology.gateways[0].id
    core = GatewayCore(GatewayParts(topology, name, 1, dispatcher, monitor, policy, Tallies()))
    core.start(0.0)
    return core


@pytest.fixture
def gateway(topology) -> GatewayCore:
    return core_of(topology)


def submit(gateway, name="r", tenant=""):
    spec = make_spec(name)
    return gateway.submit(spec, gateway.dispatcher.timelines.arrived(spec, 0.0), 0.0, tenant)


def statuses(effects):
    return sum(isinstance(effect, Publish) for effect in effects)


def test_it_hears_everybody_but_itself_and_says_that_it_starts(gateway, topology):
    (follow, publish) = gateway.start(0.0)
    assert (isinstance(follow, Follow), isinstance(publish, Publish)) == (True, True)
    assert topology.gateways[0].id not in follow.processes
    assert {engine.id for engine in topology.engines} <= follow.processes
    assert gateway.status(0.0).state is ProcessState.STARTING


def test_it_is_ready_when_its_api_listens(gateway):
    assert statuses(gateway.open("http://here", "http://there", 1.0)) == 1
    status = gateway.status(1.0)
    assert (status.state, status.url, status.admin_url) == (ProcessState.READY, "http://here", "http://there")
    assert gateway.status(1.0).seq == status.seq + 1


def test_one_with_a_successor_seems_to_drain_but_takes_requests(gateway):
    gateway.open("http://here", "", 1.0)
    assert statuses(gateway.leave(2.0)) == 1
    assert gateway.status(2.0).state is ProcessState.DRAINING
    submit(gateway)
    assert gateway.dispatcher.num_requests == 1


def test_one_without_requests_rests_as_soon_as_it_drains(gateway):
    gateway.open("http://here", "", 1.0)
    assert any(isinstance(effect, Rest) for effect in gateway.drain(2.0))
    with pytest.raises(Draining):
        submit(gateway)


def test_it_rests_when_its_last_request_has_ended(gateway):
    gateway.open("http://here", "", 1.0)
    submit(gateway, "a")
    submit(gateway, "b")
    assert not any(isinstance(effect, Rest) for effect in gateway.drain(2.0))
    assert not any(isinstance(effect, Rest) for effect in gateway.cancel("a", 3.0))
    assert any(isinstance(effect, Rest) for effect in gateway.cancel("b", 3.0))


def test_what_has_not_ended_in_time_is_cut_off(gateway, topology):
    gateway.dispatcher.observe(sender_of(M0), make_status(M0), 0.0)
    submit(gateway)
    gateway.drain(2.0)
    ends_at = 2.0 + topology.timing.drain_s
    early = gateway.expire(min(2.1, ends_at - 0.1))
    assert not any(isinstance(effect, Rest) for effect in early)
    effects = gateway.expire(ends_at)
    assert any(isinstance(effect, Rest) for effect in effects)
    assert gateway.dispatcher.num_requests == 0


def test_it_takes_a_later_policy_and_no_other(gateway):
    choice = PolicyChoice("colocated", {}, 3)
    effects = gateway.receive("cli", SetPolicy(choice), 1.0)
    assert effects[0] == TakePolicy(choice)
    assert (gateway.policy.name, statuses(effects)) == ("colocated", 1)
    assert gateway.receive("cli", SetPolicy(PolicyChoice("tropical", {}, 2)), 1.0) == []


def test_it_declines_a_policy_that_it_does_not_know_once(gateway):
    choice = PolicyChoice("best", {}, 3)
    (declined,) = gateway.receive("cli", SetPolicy(choice), 1.0)
    assert isinstance(declined, DeclinePolicy)
    assert gateway.receive("cli", SetPolicy(choice), 1.0) == []


def test_it_says_where_requests_are_to_who_asks(gateway):
    submit(gateway, "order-17-aa-0")
    submit(gateway, "order-17-bb-0")
    gateway.cancel("order-17-aa-0", 1.0)
    here = RequestPlace("order-17-bb-0", None)
    ended = RequestPlace("order-17-aa-0", None, "no longer wanted")
    for asked, places in (("order-17", [here, ended]), ("cmpl-bb", [here]), ("nobody", [])):
        assert gateway.receive("cli-1", Locate(asked), 2.0) == [TellPlaces("cli-1", RequestPlaces(asked, places))]


def test_a_consumer_that_falls_behind_is_cut_off(gateway):
    submit(gateway)
    (failure,) = [effect for effect in gateway.fall_behind("r", 77, 1.0) if isinstance(effect, Fail)]
    assert str(failure.error) == "cut off: 77 bytes were waiting to be read"
    assert gateway.dispatcher.num_requests == 0


def test_a_status_is_due_every_heartbeat(gateway, topology):
    heartbeat_s = topology.timing.heartbeat_s
    assert gateway.next_deadline() == pytest.approx(heartbeat_s)
    assert statuses(gateway.expire(heartbeat_s / 2)) == 0
    assert statuses(gateway.expire(heartbeat_s)) == 1
    assert gateway.next_deadline() == pytest.approx(2 * heartbeat_s)


def test_an_operators_policy_is_later_than_all_that_were_heard(gateway):
    gateway.receive("cli", SetPolicy(PolicyChoice("colocated", {}, 3)), 1.0)
    gateway.receive("cli", SetPolicy(PolicyChoice("best", {}, 7)), 1.0)
    effects = gateway.choose_policy(PolicySpec("tropical", {"watermark": 0.5}), 2.0)
    choice = PolicyChoice("tropical", {"watermark": 0.5, "headroom": 1.0, "flips": False, "balance": "infaas"}, 8)
    assert (effects[0], gateway.policy, statuses(effects)) == (TakePolicy(choice), choice, 1)


def test_an_operators_policy_that_does_not_exist_is_not_taken(gateway):
    with pytest.raises(UserError, match="no policy 'best'"):
        gateway.choose_policy(PolicySpec("best"), 2.0)
    assert gateway.policy.version == 0


def test_an_operators_order_goes_to_the_engine(gateway):
    assert gateway.order(M0, Drain(), 0.0) == [SendToEngine(M0, Drain())]
