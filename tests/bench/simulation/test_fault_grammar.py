import pytest

from bench.simulation.fault_grammar import (
    parse_hang,
    parse_kill,
    parse_loss,
    parse_partition,
    read_faults,
    resolve,
)
from bench.simulation.faults import Hang, Kill, Loss, Partition
from mesh.errors import UserError
from mesh.messages import Role
from tests.bench.simulation.small import topology

WHAT = topology({"prefill": Role.PREFILL, "decode-0": Role.MULTIPLEX, "decode-1": Role.MULTIPLEX})
EVERYBODY = ("gateway-0", "prefill", "decode-0", "decode-1")
FILE = """
[[kill]]
engine = "decode-*"
at_s = 120
restart_after_s = 5

[[hang]]
engine = "prefill"
at_s = 1.5
for_s = 2

[[partition]]
between = ["prefill", "decode-0"]
at_s = 3
for_s = 4

[[loss]]
probability = 0.1
"""


def faults(*tables):
    return resolve(tables, WHAT)


def test_the_command_line_says_what_and_when():
    assert faults(parse_kill("prefill@120")) == [Kill("prefill", 120.0)]
    assert faults(parse_kill("decode-*@1e2+0.5")) == [Kill("decode-0", 100.0, 0.5), Kill("decode-1", 100.0, 0.5)]
    assert faults(parse_hang("prefill@3+2")) == [Hang("prefill", 3.0, 2.0)]
    assert faults(parse_partition("decode-*, gateway-0@10+3")) == [
        Partition(("decode-0", "decode-1"), ("gateway-0",), 10.0, 3.0)
    ]
    assert faults(parse_loss("0.01")) == [Loss(0.01, EVERYBODY, EVERYBODY)]
    assert faults(parse_loss("1:prefill,decode-1@2+3")) == [Loss(1.0, ("prefill",), ("decode-1",), 2.0, 3.0)]


def test_a_file_says_the_same(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text(FILE)
    assert resolve(read_faults(path), WHAT) == [
        Kill("decode-0", 120, 5),
        Kill("decode-1", 120, 5),
        Hang("prefill", 1.5, 2),
        Partition(("prefill",), ("decode-0",), 3, 4),
        Loss(0.1, EVERYBODY, EVERYBODY),
    ]


@pytest.mark.parametrize(
    ("parse", "text", "right"),
    [
        (parse_kill, "prefill", "decode-0@120 or decode-0@120+5"),
        (parse_kill, "@3", "decode-0@120"),
        (parse_kill, "prefill@soon", "decode-0@120"),
        (parse_kill, "prefill@-1", "decode-0@120"),
        (parse_kill, "prefill@1+0", "decode-0@120"),
        (parse_kill, "prefill@nan", "decode-0@120"),
        (parse_hang, "prefill@1", "decode-0@120+5"),
        (parse_partition, "prefill@1+1", "prefill-0,decode-*@10+3"),
        (parse_partition, "prefill,decode-0@1", "prefill-0,decode-*@10+3"),
        (parse_loss, "often", "0.01 or"),
        (parse_loss, "2", "no probability; use more than 0, up to 1"),
        (parse_loss, "0.1:prefill", "0.01 or"),
        (parse_loss, "0.1@5", "0.01 or"),
    ],
)
def test_what_does_not_fit_is_told_what_would(parse, text, right):
    with pytest.raises(ValueError, match=r"does not fit; write it like|is no probability") as caught:
        parse(text)
    assert right in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[kill]\n", "not TOML"),
        ("[[stab]]\n", "unknown field `stab`; it has kill, hang, partition, loss"),
        ("[[kill]]\nengine = 'prefill'\n", "kill[0]: object missing required field `at_s`"),
        ("[[hang]]\nengine = 'prefill'\nat_s = -1\nfor_s = 1\n", "hang[0].at_s: expected `float` >= 0"),
        ("[[partition]]\nbetween = ['prefill']\nat_s = 1\nfor_s = 1\n", "partition[0].between: expected `array`"),
        ("[[kill]]\nengine = 'prefill'\nat = 1\n", "unknown field `at`; it has engine, at_s, restart_after_s"),
        ("[[loss]]\nprobability = 0.5\nat_s = 1\n", "loss[0]: give both at_s and for_s, or neither"),
    ],
)
def test_faults_of_a_file_are_one_line(tmp_path, text, words):
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_faults(path)
    assert str(caught.value).startswith(f"--faults: {path}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.toml cannot be read: No such file"):
        read_faults(tmp_path / "nowhere.toml")


def test_names_that_nobody_has_are_named():
    with pytest.raises(UserError, match=r"faults: no engine 'gateway-0' in small.toml; there are prefill, decode-0"):
        faults(parse_kill("gateway-0@1"))
    with pytest.raises(UserError, match=r"faults: no process 'nobody-\*' in small.toml; there are gateway-0, prefill"):
        faults(parse_partition("prefill,nobody-*@1+1"))
