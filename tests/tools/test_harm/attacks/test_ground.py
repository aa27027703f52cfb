"""How the requests of attackers end."""

import pytest

from tests.tools.harm.attacks.ground import answer_of
from tests.tools.harm.harm import End
from tests.tools.harm.http import Reply


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
        (Reply(503), End.FAILED),
        (Reply(None, is_closed=True), End.CUT),
        (Reply(None, is_late=True), End.HELD),
    ],
)
def test_each_reply_is_one_end(reply, end):
    assert answer_of(reply).end is end
