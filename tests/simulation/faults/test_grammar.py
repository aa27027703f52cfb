import pytest

from mesh.errors import UserError
from mesh.wire.control import Role
from simulation.faults.faults import Delay, Duplicate, FailLoad, Hang, Kill, Loss, Partition, Reorder, Slow
from simulation.faults.grammar import (
    parse_delay,
    parse_duplicate,
    parse_fail_load,
    parse_hang,
    parse_kill,
    parse_loss,
    parse_partition,
    parse_reorder,
    parse_slow,
    read_faults,
    resolve,
)
from tests.simulation.small import topology

WHAT = topology({"prefill": Role.PREFILL, "decode-0": Role.MULTIPLEX, "decode-1": Role.MULTIPLEX})
EVERYBODY = ("gateway-0", "prefill", "decode-0", "decode-1")
FILE = """
[[kill]]
process = "decode-*"
at_s = 120
restart_after_s = 5

[[hang]]
process = "gateway-0"
at_s = 1.5
for_s = 2

[[slow]]
engine = "prefill"
factor = 3

[[fail_load]]
probability = 0.5
engine = "prefill"

[[partition]]
between = ["prefill", "decode-0"]
at_s = 3
for_s = 4

[[loss]]
probability = 0.1

[[duplicate]]
probability = 0.2
late_s = 2

[[reorder]]
probability = 0.3
between = ["prefill", "decode-0"]
at_s = 5
for_s = 6

[[delay]]
up_to_s = 0.4
"""


def faults(*tables):
    return resolve(tables, WHAT)


def test_the_command_line_says_what_and_when():
    assert faults(parse_kill("prefill@120")) == [Kill("prefill", 120.0)]
    assert faults(parse_kill("decode-*@1e2+0.5")) == [Kill("decode-0", 100.0, 0.5), Kill("decode-1", 100.0, 0.5)]
    assert faults(parse_kill("gateway-*@1+1")) == [Kill("gateway-0", 1.0, 1.0)]
    assert faults(parse_hang("prefill@3+2")) == [Hang("prefill", 3.0, 2.0)]
    assert faults(parse_partition("decode-*, gateway-0@10+3")) == [
        Partition(("decode-0", "decode-1"), ("gateway-0",), 10.0, 3.0)
    ]
    assert faults(parse_slow("3:decode-*")) == [Slow("decode-0", 3.0), Slow("decode-1", 3.0)]
    assert faults(parse_slow("1.5:prefill@1+2")) == [Slow("prefill", 1.5, 1.0, 2.0)]
    assert faults(parse_fail_load("0.5@1+2")) == [FailLoad(name, 0.5, 1.0, 2.0) for name in EVERYBODY[1:]]
    assert faults(parse_fail_load("1:prefill")) == [FailLoad("prefill", 1.0)]


def test_the_command_line_says_which_messages():
    assert faults(parse_loss("0.01")) == [Loss(0.01, EVERYBODY, EVERYBODY)]
    assert faults(parse_loss("1:prefill,decode-1@2+3")) == [Loss(1.0, ("prefill",), ("decode-1",), 2.0, 3.0)]
    assert faults(parse_duplicate("0.5:prefill,*")) == [Duplicate(0.5, ("prefill",), EVERYBODY)]
    assert faults(parse_reorder("0.25@2+3")) == [Reorder(0.25, EVERYBODY, EVERYBODY, 2.0, 3.0)]
    assert faults(parse_delay("2.5:prefill,gateway-0")) == [Delay(2.5, ("prefill",), ("gateway-0",))]


def test_a_file_says_the_same(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text(FILE)
    assert resolve(read_faults(path), WHAT) == [
        Kill("decode-0", 120, 5),
        Kill("decode-1", 120, 5),
        Hang("gateway-0", 1.5, 2),
        Slow("prefill", 3),
        FailLoad("prefill", 0.5),
        Partition(("prefill",), ("decode-0",), 3, 4),
        Loss(0.1, EVERYBODY, EVERYBODY),
        Duplicate(0.2, EVERYBODY, EVERYBODY, late_s=2),
        Reorder(0.3, ("prefill",), ("decode-0",), 5, 6),
        Delay(0.4, EVERYBODY, EVERYBODY),
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
        (parse_slow, "prefill@1+1", "3:decode-0 or 3:decode-*@10+5"),
        (parse_slow, "0:prefill", "3:decode-0"),
        (parse_slow, "3:", "3:decode-0"),
        (parse_slow, "3:prefill@1", "3:decode-0"),
        (parse_fail_load, "0.5:", "0.5 or 1:decode-*@10+5"),
        (parse_fail_load, "2", "no probability; use more than 0, up to 1"),
        (parse_loss, "often", "0.01 or"),
        (parse_loss, "0", "0.01 or"),
        (parse_loss, "2", "no probability; use more than 0, up to 1"),
        (parse_loss, "0.1:prefill", "0.01 or"),
        (parse_loss, "0.1@5", "0.01 or"),
        (parse_duplicate, "1.5", "no probability; use more than 0, up to 1"),
        (parse_reorder, "0.1@5", "0.01 or"),
        (parse_delay, "long", "0.1 or 0.1:decode-*,gateway@10+5"),
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
        (
            "[[stab]]\n",
            "unknown field `stab`; it has kill, hang, slow, fail_load, partition, loss, duplicate, reorder, delay",
        ),
        ("[[kill]]\nprocess = 'prefill'\n", "kill[0]: object missing required field `at_s`"),
        ("[[hang]]\nprocess = 'prefill'\nat_s = -1\nfor_s = 1\n", "hang[0].at_s: expected `float` >= 0"),
        ("[[partition]]\nbetween = ['prefill']\nat_s = 1\nfor_s = 1\n", "partition[0].between: expected `array`"),
        ("[[kill]]\nprocess = 'prefill'\nat = 1\n", "unknown field `at`; it has process, at_s, restart_after_s"),
        ("[[loss]]\nprobability = 0.5\nat_s = 1\n", "loss[0]: give both at_s and for_s, or neither"),
        ("[[slow]]\nengine = 'prefill'\nfactor = 2\nfor_s = 1\n", "slow[0]: give both at_s and for_s, or neither"),
        ("[[reorder]]\nprobability = 2\n", "reorder[0].probability: expected `float` <= 1"),
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


def test_a_loss_may_be_of_some_messages_only(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text('[[loss]]\nprobability = 0.5\nmessages = ["StepTokens", "Commit"]\n')
    assert faults(*read_faults(path)) == [Loss(0.5, EVERYBODY, EVERYBODY, kinds=("StepTokens", "Commit"))]
    path.write_text('[[loss]]\nprobability = 0.5\nmessages = ["Tokens"]\n')
    with pytest.raises(UserError, match=r"faults: no message 'Tokens'; "):
        faults(*read_faults(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.toml cannot be read: No such file"):
        read_faults(tmp_path / "nowhere.toml")


def test_names_that_nobody_has_are_named():
    with pytest.raises(UserError, match=r"faults: no engine 'gateway-0' in small.toml; use decode-0"):
        faults(parse_slow("2:gateway-0"))
    with pytest.raises(UserError, match=r"faults: no process 'nobody-\*' in small.toml; use decode-0"):
        faults(parse_partition("prefill,nobody-*@1+1"))
