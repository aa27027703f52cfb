"""What the words of ``attacks.toml`` stand for."""

import gzip
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.tools.harm.attacks.ground import Ground
from tests.tools.harm.attacks.rows import ATTACKS, LISTS, expanded, requests


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"of": "ab", "times": 3}, "ababab"),
        ({"of": [{"a": 1}], "times": 2}, [{"a": 1}, {"a": 1}]),
        ({"of": "r{n}: r{next}", "numbered": 2}, ["r0: r1", "r1: r2"]),
        ({"of": {"k{n}": "{k}"}, "each": ['"', "\u00e9"], "as": "k"}, [{"k{n}": '"'}, {"k{n}": "\u00e9"}]),
        ({"of": {"of": "{a}{b}", "numbered": 2, "as": "b"}, "numbered": 2, "as": "a"}, [["00", "01"], ["10", "11"]]),
        ({"of": ["{n}", "{inner}"], "nested": 2, "around": {"x": 1}}, ["1", ["0", {"x": 1}]]),
        ({"join": ["a", {"of": "b", "times": 2}]}, "abb"),
        ({"of": "{n}", "each": "edges"}, [*LISTS["edges"][:13], "1" + "0" * 400, *LISTS["edges"][14:]]),
        ({"x": [{"of": "a", "times": 2}]}, {"x": ["aa"]}),
    ],
)
def test_words_stand_for_values(value, meant):
    assert expanded(value) == meant


def test_texts_are_compressed():
    assert gzip.decompress(expanded({"gzip": {"of": "a", "times": 9}}).encode("latin-1")) == b"a" * 9


def test_each_value_is_a_request_to_each_path(monkeypatch):
    monkeypatch.setattr(Ground, "port", 1)
    ground = Ground(SimpleNamespace(), None, 1.0, 1.0)
    made = list(requests({"path": ["/a", "/b"], "posts": [{"x": 1}, [{"x": 2}]]}, ground))
    assert [data.split(b" ")[1] for data in made] == [b"/a", b"/a", b"/b", b"/b"]
    assert [data.rpartition(b'"x": ')[2] for data in made] == [b"1}", b"2}"] * 2
    [compressed] = requests({"headers": [{"content-encoding": "br"}], "body": "x"}, ground)
    assert compressed.endswith(b"content-encoding: br\r\n\r\nx")


async def test_every_row_can_be_sent(monkeypatch):
    """By a way with the arguments of its function, or as it is."""
    sent = []

    async def send_all(self, requests, at_once=1):
        sent.append(next(islice(requests, 1)))
        return []

    monkeypatch.setattr(Ground, "port", 1)
    monkeypatch.setattr(Ground, "send_all", send_all)
    monkeypatch.setattr("tests.tools.harm.attacks.ground.key_headers", lambda _, name: {"authorization": name})
    plain = [one for one in ATTACKS if one.family in ("grammar", "schema", "stops", "access")]
    for attack in plain:
        if attack.name != "flood-of-a-rival":
            await attack.run(Ground(SimpleNamespace(deployment=None), None, 1.0, 1.0))
    assert len(sent) == len(plain) - 1
    assert all(data.startswith((b"POST ", b"GET ")) for data in sent)
