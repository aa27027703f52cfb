"""Models that a server does not know any more, and when they are believed to be back."""

import pytest

from router.servers.missing_models import LAST_PAUSE_S, MissingModels


@pytest.fixture
def missing():
    return MissingModels({"chat": "m", "code": "n"})


def test_a_model_that_was_listed_is_missed_when_it_is_not(missing):
    missing.listed({"m", "n"}, 0.0)
    missing.listed({"n"}, 1.0)
    assert [*missing.reasons()] == [("chat", "the server lists no model 'm' any more")]
    missing.listed({"n", "other"}, 100.0)
    assert missing.reason("chat") is not None
    missing.listed({"n", "m"}, 101.0)
    assert len(missing) == 0


def test_a_name_that_was_never_listed_may_be_an_alias(missing):
    missing.listed({"other"}, 0.0)
    assert len(missing) == 0
    missing.listed(set(), 1.0)
    assert len(missing) == 2, "a server that lists nothing serves nothing"
    missing.listed({"other"}, 2.0)
    assert len(missing) == 0


def test_a_model_that_was_denied_is_believed_again_after_pauses_that_grow(missing):
    for models in ({"m", "n"}, {"n"}):
        missing.clear()
        missing.listed(models, 0.0)
        for now, back_at in ((10.0, 11.0), (20.0, 22.0), (30.0, 34.0)):
            missing.denied("chat", "HTTP 404: no such model", now)
            assert missing.reason("chat") == "the server does not know 'm': HTTP 404: no such model"
            assert missing.reason("code") is None
            missing.listed(models, back_at - 0.1)
            assert missing.reason("chat") is not None
            missing.listed(models, back_at)
            assert missing.reason("chat") is None
    for _ in range(20):
        missing.denied("chat", "", 100.0)
    missing.listed({"m"}, 100.0 + LAST_PAUSE_S)
    assert missing.reason("chat") is None
    missing.served("chat")
    missing.denied("chat", "", 200.0)
    missing.listed({"m"}, 201.0)
    assert missing.reason("chat") is None, "it was served in between"
