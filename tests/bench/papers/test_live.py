"""What the papers' live comparisons share: turns, and answers in full."""

import pytest

from bench.live.http_load import Answer
from bench.papers.live import check_served, turned
from mesh.errors import UserError


def test_each_contender_is_first_in_its_turn():
    assert [turned("abc", by) for by in (0, 1, 3)] == [["a", "b", "c"], ["b", "c", "a"], ["a", "b", "c"]]


def test_a_request_that_was_not_served_in_full_ends_a_live_run():
    served, lost = Answer(0, 0.0, 200, 0.1, 0.2, {}), Answer(1, 0.0, 0, 0.1, 0.1, {})
    check_served([served])
    with pytest.raises(UserError, match="1 of 2 requests failed"):
        check_served([served, lost])
