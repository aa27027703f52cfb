"""When a mesh has held, and what is said where it has not."""

from dataclasses import replace

import pytest

from tests.tools.harm.testimony import Honest
from tests.tools.harm.verdict import AFTER_BYTES, DURING_BYTES, GAP_S, KILL_GAP_S, Row

HELD = Row(
    name="x",
    family="http",
    ends={"refused 400": 1},
    honest=Honest(gap_s=1.4, gap_of="chat"),
    calm_gap_s=0.5,
    limit_s=GAP_S,
    grown={"gateway": 5},
    kept={"gateway": 1},
)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"honest": Honest(gap_s=1.5, gap_of="chat")}, "chat waited 1.50 s"),
        ({"honest": Honest(gap_s=8.0), "calm_gap_s": 7.1}, None),
        ({"honest": Honest(gap_s=3.0), "limit_s": KILL_GAP_S}, None),
        ({"honest": Honest(problems=["chat: late", "chat: late"])}, "honest clients failed: 2, chat: late (2)"),
        ({"honest": Honest(lost=3, refused=2, left=1)}, None),
        ({"broken": ["it leaks"]}, "it leaks"),
        ({"restarted": ["decode"]}, "decode started anew"),
        ({"grown": {"gateway": DURING_BYTES}}, "gateway grew by 256 MiB"),
        ({"grown": {"gateway": DURING_BYTES - 1}}, None),
        ({"kept": {"decode": AFTER_BYTES}}, "decode kept 32 MiB"),
        ({"kept": {"decode": AFTER_BYTES - 1, "gateway": -(2**30)}}, None),
        ({"wrong": ["held"]}, "wrong answers: 1, held (1)"),
    ],
)
def test_a_mesh_holds_if_no_bar_is_missed(change, problem):
    assert replace(HELD, **change).problems == ([] if problem is None else [problem])


def test_a_mesh_is_used_on_as_long_as_nothing_broke():
    assert replace(HELD, grown={"gateway": DURING_BYTES}).is_whole
    assert not replace(HELD, restarted=["decode"]).is_whole
    assert not replace(HELD, honest=Honest(problems=["chat: late"])).is_whole
