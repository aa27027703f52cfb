from pathlib import Path

import pytest

from mesh.errors import UserError
from mesh.topology.schema import ServiceSpec, Slo, Topology
from simulation.loads.services import assign_services
from simulation.loads.trace_request import TraceRequest

TOPOLOGY = Topology("t", Path("t.toml"), tuple(ServiceSpec(name, "m", Slo(1.0, 0.1)) for name in "ab"), (), ())


def assigned(*traced, wanted=None):
    requests = [TraceRequest(0.0, 1, 1, service=service) for service in traced]
    return [request.service for request in assign_services(requests, TOPOLOGY, wanted)]


def test_a_trace_without_services_gets_the_first_or_the_wanted_one():
    assert assigned(None, None) == ["a", "a"]
    assert assigned(None, wanted="b") == ["b"]


def test_a_trace_keeps_its_services():
    assert assigned("b", "a", None) == ["b", "a", "a"]


def test_one_service_can_be_played_as_another():
    assert assigned("x", "x", wanted="b") == ["b", "b"]


@pytest.mark.parametrize(
    ("traced", "wanted", "words"),
    [
        (("x",), None, "t.toml: has no service x, which the trace asks for; give --service a or b"),
        (("x", "y", "a"), None, "t.toml: has no service x or y, which the trace asks for; add what is missing"),
        (("a", "b"), "a", "--service: the trace has several services, a, b; leave the option out"),
        ((None,), "x", "--service: t.toml has no service 'x'; it has a, b"),
    ],
)
def test_faults_are_one_line(traced, wanted, words):
    with pytest.raises(UserError) as caught:
        assigned(*traced, wanted=wanted)
    assert str(caught.value) == words
