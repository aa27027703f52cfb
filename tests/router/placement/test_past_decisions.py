"""What the placement daemon tells of its decisions, in its log and in its statuses."""

from mesh.wire.placement import Decision
from router.placement.change.replacement import Verdict
from router.placement.effects import Note
from router.placement.past_decisions import PastDecisions


def decision(interval: int, verdict: Verdict = Verdict.KEEP, reason: str = "no better plan") -> Decision:
    return Decision(interval, verdict, reason, 1, 60.0)


def lines(effects: object) -> list[str]:
    assert isinstance(effects, list)
    return [effect.line for effect in effects if isinstance(effect, Note)]


def test_a_reason_that_stays_is_logged_once():
    past = PastDecisions(0.0)
    assert lines(past.decide(decision(1), 60.0)) == ["interval 1: keep: no better plan"]
    assert past.decide(decision(2), 120.0) == []
    assert lines(past.decide(decision(3, reason="noise"), 180.0)) == ["interval 3: keep: noise"]


def test_each_new_plan_is_logged():
    past = PastDecisions(0.0)
    for interval in (1, 2):
        assert lines(past.decide(decision(interval, Verdict.REPLACE, "better"), 60.0))


def test_services_without_a_place_have_a_line_each():
    past = PastDecisions(0.0)
    homeless = Decision(1, Verdict.KEEP, "full", 1, 60.0, homeless=["a: too large", "b: too large"])
    assert lines(past.decide(homeless, 60.0)) == ["interval 1: keep: full", "a: too large", "b: too large"]


def test_statuses_tell_how_old_the_last_decision_and_the_last_change_are():
    past = PastDecisions(0.0)
    past.decide(decision(1), 60.0)
    past.decide(made := decision(2, Verdict.REPLACE), 120.0)
    past.change(made, 125.0)
    past.decide(kept := decision(3), 180.0)
    told = past.told(200.0)
    assert (told["decision"], told["decision_age_s"], told["made"], told["made_age_s"]) == (kept, 20.0, made, 75.0)
    assert told["decisions_total"] == {Verdict.KEEP: 2, Verdict.REPLACE: 1}


def test_an_error_is_told_until_something_goes_well():
    past = PastDecisions(0.0)
    assert past.fail("no search process") == [Note("no search process", is_problem=True)]
    past.give_up_change()
    told = past.told(1.0)
    assert (told["error"], told["changes_failed_total"], told["changes_total"]) == ("no search process", 1, 0)
    past.change(None, 2.0)
    told = past.told(3.0)
    assert (told["error"], told["made"], told["changes_total"]) == (None, None, 1)
