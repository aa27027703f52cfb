from mesh.supervisor.plan import make_plan
from mesh.supervisor.processes.command import ENGINE, GATEWAY, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord


def command(name, kind=ENGINE, digest="new", **more):
    return ChildCommand(name, kind, ("python", name), digest=digest, **more)


def record(name, started=1, digest="new", kind=ENGINE):
    return PidRecord(100 + started, f"boot/{started}", name, kind, "local", digest)


def test_what_runs_as_it_should_is_kept():
    plan = make_plan([command("g", GATEWAY), command("e")], [record("e"), record("g", kind=GATEWAY)])
    assert not plan.changes_anything
    assert list(plan.current) == ["g", "e"]
    assert list(plan.lines()) == ["g, e: running already, and kept as they are"]


def test_only_what_was_started_with_something_else_is_replaced():
    plan = make_plan([command("e"), command("f")], [record("e", digest="old"), record("f")])
    assert plan.outdated == ("e",)
    assert list(plan.lines()) == ["f: running already, and kept as it is", "e: will be replaced"]


def test_all_is_replaced_if_that_is_wanted():
    assert make_plan([command("e")], [record("e")], replace_all=True).outdated == ("e",)


def test_gateways_are_replaced_after_engines():
    commands = [command("g", GATEWAY), command("e"), command("h", GATEWAY), command("f")]
    found = [record(name, kind=kind) for name, kind in (("g", GATEWAY), ("e", ENGINE), ("h", GATEWAY), ("f", ENGINE))]
    assert make_plan(commands, found, replace_all=True).outdated == ("e", "f", "g", "h")


def test_what_does_not_run_is_started_unless_it_is_on_standby():
    plan = make_plan([command("e"), command("f", is_standby=True)], [])
    assert plan.missing == ("e",)
    assert list(plan.lines()) == ["e: will be started"]


def test_an_engine_on_standby_that_runs_is_kept():
    plan = make_plan([command("e", is_standby=True)], [record("e")])
    assert (list(plan.current), plan.changes_anything) == (["e"], False)


def test_what_the_topology_has_no_more_ends():
    plan = make_plan([command("e")], [record("e"), record("f"), record("h~", kind=GATEWAY)])
    assert {gone.process for gone in plan.removed} == {"f", "h~"}
    assert "f: not in the topology any more; will drain and end" in plan.lines()


def test_a_gateway_counts_under_either_name():
    plan = make_plan([command("g", GATEWAY)], [record("g~", kind=GATEWAY)])
    assert plan.current["g"].process == "g~"
    assert plan.missing == ()


def test_of_a_gateway_and_its_successor_the_one_that_started_later_counts():
    for old, new in (("g", "g~"), ("g~", "g")):
        plan = make_plan([command("g", GATEWAY)], [record(old, 9, kind=GATEWAY), record(new, 10, kind=GATEWAY)])
        assert plan.current["g"].process == new
        assert [incarnation.process for incarnation in plan.leaving] == [old]
