"""When a mesh has held, and what is said where it has not."""

from dataclasses import replace

import pytest

from bench.harm.http import Reply
from bench.harm.siege.attack import Attack
from bench.harm.siege.ground import TURNED_AWAY, Answer, End, answer_of
from bench.harm.siege.verdict import AFTER_BYTES, DURING_BYTES, AttackRow, ends_of, restarted, wrong_of

HELD = AttackRow(
    name="x",
    family="http",
    ends={"refused 400": 1},
    gap_s=1.4,
    calm_gap_s=0.5,
    grown={"gateway": 5},
    kept={"gateway": 1},
)


async def nothing(_):
    return []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"gap_s": 1.5}, "the witness waited 1.50 s ()"),
        ({"gap_s": 8.0, "calm_gap_s": 7.1}, None),
        ({"gap_s": 3.0, "limit_s": 3.0}, None),
        ({"failures": ["chat: late", "chat: late"]}, "the witness failed: 2, chat: late (2)"),
        ({"restarted": ["decode"]}, "decode started anew"),
        ({"grown": {"gateway": DURING_BYTES}}, "gateway grew by 256 MiB"),
        ({"grown": {"gateway": DURING_BYTES - 1}}, None),
        ({"kept": {"decode": AFTER_BYTES}}, "decode kept 32 MiB"),
        ({"kept": {"decode": AFTER_BYTES - 1, "gateway": -(2**30)}}, None),
        ({"wrong": ["held"]}, "wrong answers: 1, held (1)"),
    ],
)
def test_a_mesh_holds_if_no_bar_is_missed(change, problem):
    row = replace(HELD, **change)
    assert row.problems == ([] if problem is None else [problem])
    assert row.is_passed == (problem is None)


def test_a_mesh_is_used_on_as_long_as_nothing_broke():
    assert replace(HELD, grown={"gateway": DURING_BYTES}).is_whole
    assert not replace(HELD, restarted=["decode"]).is_whole
    assert not replace(HELD, failures=["chat: late"]).is_whole


@pytest.mark.parametrize(
    ("reply", "end"),
    [
        (Reply(200), End.SERVED),
        (Reply(200, b'data: {"error": {"message": "engines failed"}}'), End.FAILED),
        (Reply(200, is_closed=True), End.CUT),
        (Reply(200, is_late=True), End.HELD),
        (Reply(400), End.REFUSED),
        (Reply(431, is_closed=True), End.REFUSED),
        (Reply(501), End.REFUSED),
        (Reply(500), End.FAILED),
        (Reply(503), End.FAILED),
        (Reply(None, is_closed=True), End.CUT),
        (Reply(None, is_late=True), End.HELD),
    ],
)
def test_each_reply_is_one_end(reply, end):
    assert answer_of(reply).end is end


def test_answers_are_right_by_what_the_attack_allows():
    answers = [Answer(End.SERVED, 200), Answer(End.REFUSED, 400), Answer(End.FAILED, 500, "boom"), Answer(End.HELD)]
    assert wrong_of(Attack("http", "x", nothing), answers) == ["failed 500 boom", "held"]
    strict = Attack("http", "x", nothing, right=TURNED_AWAY)
    assert wrong_of(strict, answers) == [
        "served 200",
        "failed 500 boom",
        "held",
    ]
    assert ends_of(answers[:2] * 2) == {"served 200": 2, "refused 400": 2}


def test_another_process_or_none_by_a_name_is_a_restart():
    before = {"decode": 1, "prefill": 2, "gateway": 3}
    assert restarted(before, dict(before), frozenset()) == []
    assert restarted(before, {"decode": 1, "prefill": 9}, frozenset()) == ["prefill", "gateway"]
    assert restarted(before, {"decode": 7, "prefill": 2, "gateway": 3}, frozenset({"decode"})) == []
