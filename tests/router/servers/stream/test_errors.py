"""What errors of servers say: their reason, the status that they should have had, and whether the model is missing."""

import json

import pytest

from router.servers.stream.errors import message_of, misses_model, status_within


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"message": "a"}', "a"),
        (b'{"detail": "b"}', "b"),
        (b'{"error": "c"}', "c"),
        (b'{"error": {"code": 1}, "message": "d"}', "d"),
        (b'{"error": {"message": 1}}', '{"error": {"message": 1}}'),
        (b'{"error": {"message": "no  such\\npage"}}', "no such page"),
        (b"plain", "plain"),
        (b"", "no reason given"),
        (b"\xff", "\ufffd"),
        (b"x" * 900, "x" * 200),
        (json.dumps({"message": "y" * 900}).encode(), "y" * 300),
    ],
)
def test_the_reason_is_what_an_error_says(body, reason):
    assert message_of(body) == reason


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, 400),
        ({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400),
        ({"error": {"message": "too long", "type": "invalid_request_error", "code": None}}, 400),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, 400),
        ({"error": {"message": "boom", "code": "502"}}, 502),
        ({"error": {"message": "boom", "code": 7, "type": "new"}}, 500),
        ({"error": "boom"}, 500),
        ({"error": ["boom"]}, 500),
        ({"error": {"message": "gone", "type": "NotFoundError"}}, 404),
        ({"error": {"message": "later", "type": "overloaded_error"}, "type": "error"}, 503),
        ({"error": {"message": "later", "type": "tokens", "code": "rate_limit_exceeded"}}, 429),
        ({"id": "r", "status": "failed", "error": {"code": "server_error", "message": "boom"}}, 500),
        ({"error": None, "choices": []}, None),
        ({"object": "list", "data": "error"}, None),
        ({"choices": [{"text": "error"}]}, None),
        (["error"], None),
    ],
)
def test_an_error_names_the_status_that_it_should_have_had(body, status):
    assert status_within(json.dumps(body).encode()) == status


@pytest.mark.parametrize(
    ("body", "is_model"),
    [
        (b'{"error": {"message": "The model `m` does not exist.", "param": null, "code": 404}}', True),
        (b'{"error": {"message": "not found", "code": "model_not_found"}}', True),
        (b'{"error": {"message": "not found", "param": "model"}}', True),
        (b'{"error": "model \'m\' not found, try pulling it first"}', True),
        (b'{"detail": "Not Found"}', False),
        (b"404 page not found", False),
        (b"the model of a proxy\xff", False),
    ],
)
def test_a_model_that_is_not_found_is_told_from_a_path(body, is_model):
    assert misses_model(body) is is_model
