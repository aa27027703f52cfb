"""What may be asked of a simulation, and how its answer is read."""

from pathlib import Path

import msgspec
import pytest

from router.api.errors import ApiError
from router.ui.what_if import Failure, Result, WhatIfProgress, WhatIfQuestion, event, progress_of, read_answer

POLICIES, POOLS = ("tropical", "colocated"), ("prefill", "decode")
FOLDER = Path("/somewhere")


def asked(policies=(), engines=()):
    return WhatIfQuestion.of(policies, engines, POLICIES, POOLS)


def test_a_question_becomes_one_command():
    question = asked(["tropical", "colocated:x=0.5", "tropical"], ["unchanged", "prefill=2,decode=3"])
    command = question.command(Path("/mesh.toml"), FOLDER / "recording.jsonl")
    assert command[:3] == ["simulate", "/mesh.toml", "--trace=/somewhere/recording.jsonl"]
    assert "--compare=tropical,colocated:x=0.5" in command
    assert [word for word in command if word.startswith("--engines")] == [
        "--engines=unchanged",
        "--engines=prefill=2,decode=3",
    ]
    assert not [word for word in asked().command(Path(), FOLDER) if word.startswith(("--compare", "--engines"))]


@pytest.mark.parametrize(
    ("policies", "engines", "words"),
    [
        (["tropica"], [], "did you mean 'tropical'"),
        (["--out=/etc"], [], "is no policy"),
        (["tropical,colocated --html x"], [], "is no policy"),
        (["../../etc/passwd"], [], "is no policy"),
        (["tropical:x=/etc/passwd"], [], "is no policy"),
        (["tropical\n"], [], "is no policy"),
        (["tropical" + ":x=1" * 100], [], "is no policy"),
        (["tropical"] * 9, [], "8 times at most, not 9"),
        ([], ["prefill=0"], "is no number of engines"),
        ([], ["prefill=65"], "each up to 64"),
        ([], ["prefill=2,"], "is no number of engines"),
        ([], ["prefil=2"], "did you mean 'prefill'"),
        ([], ["prefill=2," * 99 + "prefill=2"], "characters"),
        ([], ["../x=1"], "is no number of engines"),
        ([f"tropical:x={n}" for n in range(4)], [f"decode={n}" for n in range(1, 5)], "these are 16 simulations"),
    ],
)
def test_what_cannot_be_simulated_is_said(policies, engines, words):
    with pytest.raises(ApiError, match=words) as caught:
        asked(policies, engines)
    assert caught.value.status == 400


def test_progress_is_read_from_lines():
    assert progress_of("simulating 4 runs: 42%, 1 min 08 s left") == WhatIfProgress(0.42, "1 min 08 s")
    assert progress_of("simulating tropical: 100%") == WhatIfProgress(1.0)
    assert progress_of("SLOs are those of the recorded requests") is None


def test_a_result_is_passed_on_with_remarks():
    answer = read_answer(0, b'{"runs":[]}\n', ["remarked"], FOLDER)
    assert isinstance(answer, Result)
    assert msgspec.json.decode(msgspec.json.encode(answer)) == {"comparison": {"runs": []}, "notes": ["remarked"]}
    assert event("result", answer).count(b"\n") == 3


@pytest.mark.parametrize(
    ("code", "written", "said", "words"),
    [
        (2, b"", ["/somewhere/recording.jsonl:1: empty"], "recording.jsonl:1: empty"),
        (2, b"", [], "The simulation ended with code 2 and said nothing"),
        (0, b'{"runs":', [], "The simulation ended without a result"),
        (-24, b"", [], "The simulation took more time than it may; choose a shorter recording, or fewer alternatives"),
        (-9, b"", [], "The simulation was ended by signal 9"),
    ],
)
def test_a_failure_is_told_in_the_words_of_the_command(code, written, said, words):
    assert read_answer(code, written, said, FOLDER) == Failure(words)
