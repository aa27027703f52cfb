from math import inf
from random import Random

import pytest

from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState
from mesh.wire.frames import Sender
from mesh.wire.status import GatewayStatus
from router.policies.packing import Packing, PackingParameters
from router.policies.parts.own_part import SIZES, OwnPart
from router.policies.policy import Dispatch
from router.policies.registry import make_policy
from router.view.engine_view import RequestView
from router.view.monitor import Monitor
from tests.router.cluster import SERVICE, make_status, sender_of

GATEWAYS = "gateway-0", "gateway-1"
ENGINES = [f"multiplex-{number}" for number in range(2 * SIZES.smallest)]


def monitor(gateway, *others):
    made = Monitor(100.0, gateway, 1.0)
    for engine in ENGINES:
        made.observe(sender_of(engine), make_status(engine), 0.0)
    for other in others:
        status = GatewayStatus(1, ProcessState.READY, "local", 1, "", 0, 0)
        made.hear_gateway(Sender(other, 1), status, 0.0)
    return made


def request(number=0, num_tokens=20):
    return RequestView(f"r{number}", SERVICE, num_tokens, 0.0, inf, inf)


def decide(view, policy="least_loaded", asked=None):
    return OwnPart().decide(make_policy(PolicySpec(policy), Random(0)), asked or request(), view, 0.0)


def test_gateways_look_at_different_engines_first():
    parts = []
    for mine, other in (GATEWAYS, GATEWAYS[::-1]):
        decision, seen = decide(monitor(mine, other).view())
        assert isinstance(decision, Dispatch)
        assert decision.prefill_engine in seen.engines
        parts.append(set(seen.engines))
    assert parts[0] | parts[1] == set(ENGINES)
    assert not parts[0] & parts[1]


def test_a_gateway_alone_looks_at_all():
    view = monitor(GATEWAYS[0]).view()
    assert decide(view)[1] is view


def test_what_its_part_cannot_take_goes_to_the_others():
    known = monitor(*GATEWAYS)
    mine = decide(known.view())[1].engines
    for engine in mine:
        known.observe(sender_of(engine), make_status(engine, 2, num_blocks=1), 0.0)
    decision, seen = decide(known.view(), asked=request(num_tokens=200))
    assert isinstance(decision, Dispatch)
    assert decision.prefill_engine not in mine
    assert len(seen.engines) == len(ENGINES)


@pytest.mark.parametrize("excess", [0.0, 0.1])
def test_a_policy_that_forms_groups_sees_the_whole_mesh(excess):
    view = monitor(*GATEWAYS).view()
    policy = Packing(PackingParameters(excess=excess))
    _, seen = OwnPart().decide(policy, request(), view, 0.0)
    assert (seen is view) == (excess > 0)
