"""What engines tell of slack to come: few lines that stand for all decodes, whatever joins them."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.scheduling.backlog import Joining
from engines.scheduling.foreseen import foreseen_slacks, lower_envelope
from mesh.wire.status import MOST_FORESEEN, ForeseenSlack
from tests.engines.conftest import MakeSequence

LINES = st.lists(st.builds(ForeseenSlack, st.floats(-5, 50), st.integers(1, 3000)), max_size=60)


def least(lines, slower_s: float) -> float:
    return min((slack_s - slower_s * num_steps for slack_s, num_steps in lines), default=inf)


@given(LINES, st.floats(0, 1))
def test_the_envelope_is_as_low_as_the_lowest_of_all(lines, slower_s):
    envelope = lower_envelope(lines)
    assert len(envelope) <= MOST_FORESEEN
    assert least(envelope, slower_s) <= least(lines, slower_s) + 1e-9
    if len(envelope) < MOST_FORESEEN:
        assert least(envelope, slower_s) == pytest.approx(least(lines, slower_s))


@given(LINES)
def test_the_first_line_is_the_least_slack_as_things_are(lines):
    envelope = lower_envelope(lines)
    assert [one.slack_s for one in envelope[:1]] == [min(one.slack_s for one in lines)] if lines else not envelope
    assert envelope == sorted(envelope)


def test_many_lines_are_told_as_few_that_are_no_higher():
    lines = [ForeseenSlack(float(n * n), 10 * n + 1) for n in range(40)]
    assert len(lower_envelope(lines)) == MOST_FORESEEN
    assert all(least(lower_envelope(lines), x / 10) <= least(lines, x / 10) for x in range(100))


def test_what_will_join_has_the_slack_of_its_whole_answer_and_of_prefills_before_it(make_sequence: MakeSequence):
    coming = make_sequence("r", 4, max_tokens=100, at_least=(11,))
    promise_s = coming.spec.slo_tpot_s
    (told,) = foreseen_slacks([], [Joining(coming, 0.3)], 7.0, 0.02)
    assert told == (pytest.approx(0.3 + 10 * (promise_s - 0.02)), 11)


def test_a_decode_that_will_be_late_in_any_case_is_not_told_of(make_sequence: MakeSequence):
    late = make_sequence("r", 4, max_tokens=100, expected=(10,), at_least=(5,))
    for _ in range(3):
        late.append(7, None, 0.0)
    assert foreseen_slacks([late], [], 1000.0, 0.02) == []
    assert len(foreseen_slacks([late], [], 0.0, 0.02)) == 1
