import pytest

from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.errors import UserError
from router.api.access.keyring import Keyring


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def add(path, name, **limits):
    key, text = make_key(name, KeyLimits(**limits), 0.0)
    change_keys(path, lambda keys: (*keys, key))
    return text


async def test_a_key_of_the_file_is_found(path):
    text = add(path, "alice", in_flight=3)
    held = Keyring(path, KeyLimits(in_flight=9, requests_per_minute=60)).find(text)
    assert (held.key.name, held.limits) == ("alice", KeyLimits(in_flight=3, requests_per_minute=60))


@pytest.mark.parametrize("change", [lambda text: text[:-1] + "!", lambda text: text[:16], lambda text: "", str.upper])
async def test_nothing_else_is(path, change):
    text = add(path, "alice")
    assert Keyring(path, KeyLimits()).find(change(text)) is None


async def test_a_secret_opens_its_own_key_alone(path):
    first, second = add(path, "alice"), add(path, "bob")
    assert Keyring(path, KeyLimits()).find(first[:16] + second[16:]) is None


async def test_a_changed_file_is_read_anew_and_what_was_used_stays(path):
    alice = add(path, "alice")
    keyring = Keyring(path, KeyLimits())
    meter = keyring.find(alice).meter
    bob = add(path, "bob")
    assert keyring.find(bob) is None
    await keyring.look()
    assert keyring.find(bob) is not None
    assert keyring.find(alice).meter is meter
    change_keys(path, lambda keys: keys[1:])
    await keyring.look()
    assert keyring.find(alice) is None


async def test_a_broken_or_vanished_file_changes_nothing_and_is_told_once(path, logged):
    alice = add(path, "alice")
    keyring = Keyring(path, KeyLimits())
    path.write_text("{")
    await keyring.look()
    await keyring.look()
    path.unlink()
    await keyring.look()
    await keyring.look()
    assert keyring.find(alice) is not None
    assert len([entry for entry in logged if "last good ones stay" in entry["event"]]) == 2
    bob = add(path, "bob")
    await keyring.look()
    assert (keyring.find(alice), keyring.find(bob).key.name) == (None, "bob")


async def test_without_a_file_nobody_has_a_key_until_there_is_one(path):
    keyring = Keyring(path, KeyLimits())
    alice = add(path, "alice")
    assert keyring.find(alice) is None
    await keyring.look()
    assert keyring.find(alice) is not None


async def test_a_gateway_does_not_start_with_a_broken_file(path):
    path.write_text("{}")
    with pytest.raises(UserError):
        Keyring(path, KeyLimits())
