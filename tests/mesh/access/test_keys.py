import msgspec
import pytest

from mesh.access.keys import AccessKey, KeyLimits, make_key, split_key


def test_a_key_is_known_by_its_secret_alone():
    key, text = make_key("alice", KeyLimits(), 1000.0)
    found = split_key(text)
    assert found is not None
    assert found[0] == key.id
    assert key.matches(found[1])
    assert not key.matches(found[1][:-1] + ("A" if found[1][-1] != "A" else "B"))
    assert not key.matches("")


def test_what_is_kept_does_not_hold_the_secret():
    key, text = make_key("alice", KeyLimits(), 1000.0)
    _, secret = split_key(text)
    kept = msgspec.json.encode(key).decode() + repr(key)
    assert secret not in kept


def test_no_two_keys_are_alike():
    keys = [make_key("alice", KeyLimits(), 0.0) for _ in range(50)]
    assert len({key.salt for key, _ in keys}) == len({text for _, text in keys}) == 50


@pytest.mark.parametrize(
    "text",
    ["", "ms-", "sk-0123456789ab-" + "A" * 43, "ms-0123456789ab-" + "A" * 42, "ms-0123456789ab-" + "A" * 44,
     "ms-0123456789AB-" + "A" * 43, "ms-0123456789ab-" + "é" * 43, "ms-0123456789ab-" + "A" * 43 + "\n", "x" * 10**6],
)  # fmt: skip
def test_other_texts_are_no_keys(text):
    assert split_key(text) is None


def test_a_key_ends_when_it_expires():
    key, _ = make_key("alice", KeyLimits(), 1000.0, expires=2000.0)
    assert [key.has_expired(wall_s) for wall_s in (1999.9, 2000.0)] == [False, True]
    assert not make_key("bob", KeyLimits(), 1000.0)[0].has_expired(1e12)


def test_a_key_says_more_than_the_defaults():
    limits = KeyLimits(in_flight=2).over(KeyLimits(in_flight=9, requests_per_minute=60))
    assert limits == KeyLimits(in_flight=2, requests_per_minute=60)


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"name": "a b"}, {"name": "a" * 65}, {"id": "xyz"}, {"hash": "0g"}, {"limits": {"in_flight": 0}},
     {"limits": {"min_ttft_ms": 0}}, {"limits": {"max_priority": 2000}}, {"colour": "red"}],
)  # fmt: skip
def test_a_file_says_nothing_else(fields):
    known = {"name": "a", "id": "0" * 12, "salt": "00", "hash": "00", "created": 0.0}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(known | fields, AccessKey)
