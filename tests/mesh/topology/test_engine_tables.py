"""Deployments with other numbers of engines than their files say."""

import pytest

from mesh.errors import UserError
from mesh.topology.parse import load

TOPOLOGY = """\
[services.tiny]
model = "models/tiny"
[engines.prefill]
role = "prefill"
[engines.decode]
count = 3
at_least = 2
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mesh.toml"
    file.write_text(TOPOLOGY)
    return file


def test_numbers_of_engines_replace_those_of_the_file(path):
    topology = load(path, counts={"prefill": 2})
    assert [engine.id for engine in topology.engines] == ["prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2"]
    assert len(load(path).engines) == 4


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"decod": 2}, r"has no \[engines.decod\]; did you mean 'decode'"),
        ({"decode": 1}, "at_least: 2 is more than count = 1"),
        ({"decode": 5000}, "1024"),
    ],
)
def test_what_cannot_be_is_said(path, counts, words):
    with pytest.raises(UserError, match=words):
        load(path, counts=counts)


def test_a_file_without_engines_has_none_to_change(tmp_path):
    file = tmp_path / "mesh.toml"
    file.write_text("engines = 3\n")
    with pytest.raises(UserError, match="there is none"):
        load(file, counts={"decode": 1})
