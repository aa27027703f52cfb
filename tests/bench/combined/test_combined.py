"""The bench of everything together, small: what is compared is compared on equal terms."""

from math import inf

import pytest

from bench.combined import __main__ as command
from bench.combined.contenders import ALL_ON, CONTENDERS, EVERYBODY, PARTS, UNION
from bench.combined.runs import Case, Result, capacity, fewest_engines, run_case
from bench.combined.setting import GROUPS, KEYS, KINDS, Layout, Load, groups_of, make_engines, make_topology
from mesh.wire.control import Role
from router.policies.registry import policies


def result(attainment, **fields):
    empty = {"by_service": {}, "rejected": 0.0, "ttft_p99_s": 0.0, "tpot_p99_s": 0.0}
    return Result(attainment=attainment, **empty | fields)


class Told:
    """Answers as a function of the case does."""

    def __init__(self, attainment_of):
        self._attainment_of = attainment_of

    def __call__(self, case):
        return result(self._attainment_of(case))


def case(num_engines=16):
    return Case(ALL_ON, num_engines, Load(10.0, 100, 0))


# --- the setting ------------------------------------------------------------------------------------------------------


def test_a_load_has_all_services_and_keys_in_their_shares():
    requests = Load(20.0, 1000, 0).requests()
    assert len(requests) == pytest.approx(1000, abs=5)
    for name, kind in KINDS.items():
        assert sum(one.service == name for one in requests) == round(1000 * kind.share)
    for tenant, priority, share in KEYS:
        own = [one for one in requests if one.tenant == tenant]
        assert len(own) == pytest.approx(1000 * share, rel=0.2)
        assert {one.priority for one in own} == {priority}


def test_the_same_pattern_comes_at_any_rate():
    slow, fast = (Load(rate, 300, 7).requests() for rate in (5.0, 10.0))
    assert [one.at_s for one in slow] == pytest.approx([2 * one.at_s for one in fast])
    assert [one.num_input for one in slow] == [one.num_input for one in fast]


def test_promises_are_of_three_kinds():
    promised = {name: set() for name in KINDS}
    for one in Load(20.0, 1000, 0).requests():
        promised[one.service].add((one.slo_ttft_s, one.slo_tpot_s))
    assert promised["chat"] == {(1.0, 0.05)}
    assert promised["expert"] == {(3.0, 0.1)}
    assert len(promised["documents"]) > 10
    assert min(ttft_s for ttft_s, _ in promised["documents"]) == 2.0


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("num_engines", [16, 32])
def test_a_fleet_has_its_engines_shared_or_not(shares, num_engines):
    layout = Layout(shares=shares)
    assert sum(count for _, count in groups_of(layout, num_engines).values()) == num_engines
    engines = make_engines(layout, groups_of(layout, num_engines))
    assert {engine.services for engine in engines} == (set(GROUPS.values()) if shares else {(name,) for name in KINDS})


def test_one_engine_in_three_or_more_of_a_group_only_prefills():
    layout = Layout(has_prefill=True)
    roles = [engine.role for engine in make_engines(layout, groups_of(layout, 16))]
    assert roles.count(Role.PREFILL) == 5
    assert {engine.role for engine in make_engines(Layout(), groups_of(Layout(), 16))} == {Role.MULTIPLEX}


def test_contenders_are_policies_that_run_the_topology():
    for contender in EVERYBODY.values():
        assert contender.policy in policies()
        groups = groups_of(contender.layout, 16)
        topology, profiles = make_topology(contender.layout, groups, contender.spec, contender.rescheduling)
        assert set(profiles) == {engine.id for engine in topology.engines}
    assert all(contender != UNION for contender in PARTS.values())
    assert {one.policy for one in CONTENDERS.values()} >= {"cache_aware", "kv_aware", "predicted_latency"}


# --- searches ---------------------------------------------------------------------------------------------------------


def test_the_capacity_is_where_the_promise_breaks(monkeypatch):
    monkeypatch.setattr("bench.combined.runs.run_case", Told(lambda case: 1.0 if case.load.rate < 20 else 0.5))
    assert 17 < capacity(case()) < 22


def test_the_fewest_engines_lie_between_two_fleets(monkeypatch):
    """Of each group, two keep 94 % and one 88 %: a third of the way."""
    monkeypatch.setattr("bench.combined.runs.run_case", Told(lambda case: 0.88 + 0.06 * (case.num_engines - 1)))
    assert fewest_engines(case()) == pytest.approx(len(GROUPS) * (1 + 1 / 3))


def test_a_group_alone_is_asked_for_its_own_services():
    alone = Case("like Dynamo", 2, Load(28.0, 100, 0), group="small")
    assert set(run_case(alone).by_service) == {"chat", "code"}


def test_no_fleet_may_be_enough(monkeypatch):
    monkeypatch.setattr("bench.combined.runs.run_case", Told(lambda case: 0.5))
    assert fewest_engines(case(num_engines=8)) == inf


# --- what is told -----------------------------------------------------------------------------------------------------


def test_rows_have_everything_on_as_so_many_times_the_others():
    rows = list(command.number_rows({ALL_ON: [20.0], "other": [10.0]}))
    assert rows == [(ALL_ON, "20.0", ""), ("other", "10.0", "2.00")]


def test_the_command_tells_and_does_nothing_twice(tmp_path, capsys, monkeypatch):
    asked = ["--ask", "parts", "--requests", "100", "--engines", "8", "--seeds", "1", "--jobs", "1"]
    asked += ["--only", ALL_ON, "like Dynamo", "--out", str(tmp_path)]
    command.main(asked)
    assert "like Dynamo" in capsys.readouterr().out
    told = (tmp_path / "parts.json").read_bytes()
    monkeypatch.setattr("bench.combined.runs.make_simulation", None)
    command.main(asked)
    assert "2 runs, 2 of them done before" in capsys.readouterr().out
    assert (tmp_path / "parts.json").read_bytes() == told


@pytest.mark.parametrize(("option", "problem"), [("--engines", "use 4 or more"), ("--requests", "use 100 or more")])
def test_too_few_are_refused_in_a_line(option, problem, capsys):
    with pytest.raises(SystemExit):
        command.main([option, "3"])
    assert problem in capsys.readouterr().err
