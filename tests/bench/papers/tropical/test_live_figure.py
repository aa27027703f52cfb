from collections import Counter

from bench.papers.tropical.live.figure import POLICIES, contender_of, turns
from bench.papers.tropical.live.fleets import Fleet, to_measure
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest

CONTENDERS = [contender_of(PolicySpec(name), 32) for name in POLICIES]
SERVICE = ServiceSpec("chat", "hf:org/name", Slo(1.0, 0.1, 0.9))


def make(rate, number):
    return [TraceRequest(float(number), 100, 10)]


def test_each_policy_gets_each_trace_once():
    planned = list(turns(CONTENDERS, [1.0, 2.0], 3, make))
    assert set(Counter((turn.contender.name, turn.rate, turn.trace[0].at_s) for turn in planned).values()) == {1}
    assert len(planned) == len(CONTENDERS) * 2 * 3


def test_each_policy_is_first_in_turn():
    planned = list(turns(CONTENDERS, [1.0, 2.0, 3.0], 2, make))
    assert [turn.contender.name for turn in planned[:: len(CONTENDERS)]] == list(POLICIES)


def test_no_two_turns_have_the_same_tokens():
    planned = list(turns(CONTENDERS, [1.0, 2.0], 3, make))
    assert len({turn.seed for turn in planned}) == len(planned)


def test_policies_that_do_not_split_get_engines_that_are_alike(tmp_path):
    for one in CONTENDERS:
        roles = [engine.role for engine in one.fleet.write(tmp_path, SERVICE).engines]
        alike = one.policy.name in ("colocated", "chunked")
        assert roles == [Role.MULTIPLEX if alike else Role.PREFILL, Role.MULTIPLEX]


def test_each_kind_of_engine_is_measured_once(tmp_path):
    fleets = [Fleet(True, 256), Fleet(False, 256), Fleet(False, 32)]
    paths = to_measure([fleet.write(tmp_path, SERVICE) for fleet in fleets], keeps=False)
    assert [path.stem for path in paths] == ["split-256", "alike-32"]
