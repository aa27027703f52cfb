"""Which tokens a grammar leaves, against Python's own reading of what was written."""

import fcntl
import json
import random
import re
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from llguidance import LLMatcher

from engines.grammars import accounts, masks
from engines.grammars.accounts import FORCED_AT_FIRST, GrammarAccount
from engines.grammars.masks import AnswerSoFar, Masks
from engines.grammars.process import GrammarProcess, Vocabulary
from engines.grammars.protocol import Answer, Bad
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Draw, Unsampled
from mesh.wire.requests import FailureCode, Sampling
from tests.seeds import each_seed, seeds

FOLDER = Path(__file__).parents[3] / "deploy/models/byte-llama"  # a token is a byte
END = 257
VOCABULARY = Vocabulary(FOLDER, ModelConfig.load(FOLDER).vocab_size, (END,))
PROMPT = [256, 65]
NUMBER = LLMatcher.grammar_from_regex("-?[1-9][0-9]{0,3}")
ENDLESS = json.dumps(
    {
        "grammars": [
            {
                "json_schema": {
                    "allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]
                }
            }
        ]
    }
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "tags": {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 3},
        "size": {"type": ["integer", "null"], "minimum": 0, "maximum": 300},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def grammars() -> Iterator[Masks]:
    made = Masks(VOCABULARY)
    yield made
    made.close()


def draw(grammar: str, generated: list[int], request: str = "r") -> Draw:
    sampling = Sampling(max_tokens=99, seed=0, grammar=grammar)
    return Draw(sampling, [*PROMPT, *generated], len(PROMPT), len(PROMPT) + len(generated), request)


def allowed(grammars: Masks, grammar: str, text: str | list[int], request: str = "r") -> set[int]:
    tokens = list(text.encode()) if isinstance(text, str) else text
    [mask] = grammars.take([draw(grammar, tokens, request)])
    assert not isinstance(mask, Unsampled), mask
    return set(np.flatnonzero(mask).tolist())


def refusal(grammars: Masks, grammar: str, text: str, request: str = "r") -> Unsampled:
    [answer] = grammars.take([draw(grammar, list(text.encode()), request)])
    assert isinstance(answer, Unsampled)
    return answer


def written(grammars: Masks, grammar: str, choose: random.Random, most: int = 4000) -> str:
    """Any answer, each token as likely as the others that may come."""
    generated: list[int] = []
    while len(generated) < most:
        token = choose.choice(sorted(allowed(grammars, grammar, generated)))
        if token == END:
            return bytes(generated).decode()
        generated.append(token)
    raise AssertionError(f"no end after {bytes(generated)!r}")


def test_an_answer_may_end_where_it_is_whole_and_nowhere_else(grammars: Masks):
    digits = set(b"0123456789")
    assert allowed(grammars, NUMBER, "") == digits - {ord("0")} | {ord("-")}
    assert allowed(grammars, NUMBER, "-") == digits - {ord("0")}
    assert allowed(grammars, NUMBER, "-1") == digits | {END}
    assert allowed(grammars, NUMBER, "-1234") == {END}


@each_seed(4)
def test_whatever_is_drawn_is_what_was_asked_for(grammars: Masks, seed: int):
    choose = random.Random(seed)
    made = json.loads(written(grammars, LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA)), choose))
    assert made.keys() - {"tags"} == {"name", "size"}
    assert len(made["name"]) <= 4
    assert made["size"] is None or 0 <= made["size"] <= 300
    assert set(made.get("tags", [])) <= {"a", "bc"}
    assert re.fullmatch("-?[1-9][0-9]{0,3}", written(grammars, NUMBER, choose))


def test_requests_that_take_turns_or_come_back_find_their_place(grammars: Masks):
    """Also where each change of request costs another its place, and a request comes with other tokens than before."""
    texts = ["-12", "7", "1234", "-", "99"]
    expected = {
        text[:length]: allowed(grammars, NUMBER, text[:length], request="only")
        for text in texts
        for length in range(len(text) + 1)
    }
    for seed in seeds(3):
        choose = random.Random(seed)
        for _ in range(60):
            text = choose.choice(texts)
            part = text[: choose.randrange(len(text) + 1)]
            assert allowed(grammars, NUMBER, part, request=choose.choice("abcdef")) == expected[part]


def test_what_does_not_keep_to_its_grammar_fails_alone(grammars: Masks):
    assert "does not keep to" in refusal(grammars, NUMBER, "x").reason
    broken = refusal(grammars, LLMatcher.grammar_from_lark("start: /[a-/"), "")
    assert re.search(r"cannot be followed: .* unclosed character class$", broken.reason)
    assert broken.code is FailureCode.GRAMMAR
    assert END in allowed(grammars, NUMBER, "5")


def test_one_without_any_text_fails(grammars: Masks):
    schema = LLMatcher.grammar_from_json_schema('{"$ref": "#"}')
    assert refusal(grammars, schema, "").reason == "the grammar cannot be followed: no text at all keeps to it"


def test_a_tokenizer_that_cannot_follow_is_named(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text("{}")
    grammars = Masks(Vocabulary(tmp_path, VOCABULARY.size, (END,)))
    assert "this model's tokenizer cannot follow grammars" in refusal(grammars, NUMBER, "").reason
    grammars.close()


def test_one_that_takes_for_ever_fails_and_the_others_go_on(grammars: Masks):
    """Those behind it in the same step, and those that were followed before."""
    assert END not in allowed(grammars, NUMBER, "", request="before")
    draws = [draw(ENDLESS, [], "endless"), draw(NUMBER, list(b"12"), "behind"), draw(NUMBER, list(b"3"), "before")]
    answers = dict(zip([one.request for one in draws], grammars.take(draws), strict=True))
    endless = answers["endless"]
    assert isinstance(endless, Unsampled)
    assert endless.code is FailureCode.GRAMMAR
    assert endless.reason == "the grammar cannot be followed: it takes too much CPU time"
    for request in ("behind", "before"):
        mask = answers[request]
        assert not isinstance(mask, Unsampled)
        assert mask[END]


def test_a_mask_that_is_late_does_not_hold_the_batch():
    hasty = Masks(VOCABULARY, patience_s=0.0)
    assert hasty.take([draw(NUMBER, [], "r")])[0] is masks.LATE
    while hasty.take([draw(NUMBER, [], "r")])[0] is masks.LATE:
        pass
    hasty.close()


def kill(grammars: Masks) -> None:
    process = grammars._process._process
    assert process is not None
    process.kill()
    process.wait()


def test_a_process_that_is_killed_costs_nobody(grammars: Masks):
    assert END in allowed(grammars, NUMBER, "1", request="a")
    kill(grammars)
    assert END in allowed(grammars, NUMBER, "12", request="a")
    assert END in allowed(grammars, NUMBER, "12", request="b")


def test_a_process_that_cannot_be_started_is_not_the_grammars_fault(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    grammars = Masks(VOCABULARY)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", fail)
        assert refusal(grammars, NUMBER, "").code is FailureCode.STEP
    assert END in allowed(grammars, NUMBER, "1")
    grammars.close()


def test_a_process_is_heard_whatever_the_number_of_its_descriptor(grammars: Masks):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    assert END in allowed(grammars, NUMBER, "1")
    before = grammars._process._connection
    assert before is not None
    grammars._process._connection = socket.socket(fileno=fcntl.fcntl(before, fcntl.F_DUPFD_CLOEXEC, 1500))
    before.close()
    assert END in allowed(grammars, NUMBER, "12")


def test_all_requests_of_a_grammar_that_is_too_dear_fail_at_its_first_death(grammars: Masks):
    deaths: list[Bad] = []
    hear = grammars._hear

    def listen(answer: Answer) -> None:
        deaths.extend([answer] if isinstance(answer, Bad) else [])
        hear(answer)

    grammars._hear = listen  # type: ignore[method-assign]
    twin = ENDLESS.replace("9967", "9949")
    choices = [draw(twin, [], f"choice {number}") for number in range(40)]
    draws = [*choices, draw(NUMBER, list(b"1"), "honest")]
    answers = dict(zip([one.request for one in draws], grammars.take(draws), strict=True))
    assert {answers[choice.request] for choice in choices} == {answers["choice 0"]}
    assert isinstance(answers["choice 0"], Unsampled)
    assert answers["choice 0"].code is FailureCode.GRAMMAR
    assert not isinstance(answers["honest"], Unsampled)
    assert len(deaths) == 1
    assert refusal(grammars, twin, "", request="later") == answers["choice 0"]
    assert len(deaths) == 1
    del grammars._hear  # type: ignore[method-assign]


def test_a_grammar_that_stays_dear_fails(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    """One that passes any check, and takes more time for each token of an answer."""
    ambiguous = LLMatcher.grammar_from_lark('start: s\ns: s s s | s s | "a" | ""')
    monkeypatch.setattr(accounts, "CPU_S_AT_FIRST", 0.01)
    monkeypatch.setattr(accounts, "CPU_S_PER_MASK", 0.0)
    for length in range(2000):
        [answer] = grammars.take([draw(ambiguous, [97] * length, "r")])
        if isinstance(answer, Unsampled):
            assert answer.code is FailureCode.GRAMMAR
            assert "of CPU time a token" in answer.reason
            return
    raise AssertionError("it goes on")


def test_a_grammar_that_is_cheap_never_uses_up_its_account():
    account = GrammarAccount()
    for _ in range(10_000):
        account.book(0.004)
    assert account.refusal is None


def test_tokens_come_in_parts_where_they_are_many(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(masks, "TOKENS_PER_JOB", 3)
    letters = LLMatcher.grammar_from_regex("[a-z]*")
    assert END in allowed(grammars, letters, "abcdefghij", request="parts")
    assert END in allowed(grammars, letters, "abcdefghijklmnop", request="parts")


def with_drafts(first: Draw, drafts: bytes) -> list[Draw]:
    """The draws of a decode with drafts, as `engines.speculation.verification` makes them."""
    return [
        msgspec.structs.replace(first, position=first.position + place, drafts=list(drafts[:place]))
        for place in range(len(drafts) + 1)
    ]


def test_drafts_are_followed_as_far_as_the_grammar_allows_them(grammars: Masks):
    number = LLMatcher.grammar_from_regex("-?[1-9][0-9]{0,6}")
    assert END in allowed(grammars, number, "1", request="d")
    found = grammars.take(with_drafts(draw(number, list(b"12"), "d"), b"34x5"))
    alone = [allowed(grammars, number, text, request="alone") for text in ("12", "123", "1234")]
    assert [set(np.flatnonzero(mask).tolist()) for mask in found[:3]] == alone
    assert list(found[3:]) == [masks.LATE, masks.LATE]
    assert allowed(grammars, number, "123", request="d") == alone[1]  # the drafts are no part of the answer
    ends = grammars.take(with_drafts(draw(number, list(b"1234"), "d"), b"567"))
    assert set(np.flatnonzero(ends[3]).tolist()) == {END}


def test_drafts_of_a_dear_grammar_are_not_followed(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accounts, "CHEAP_S", 0.0)
    found = grammars.take(with_drafts(draw(NUMBER, [], "dear"), b"12"))
    assert not isinstance(found[0], Unsampled)
    assert list(found[1:]) == [masks.LATE, masks.LATE]


WORDS = LLMatcher.grammar_from_regex("-?[0-9](elephants|elevators|mice)!")
LONG_S = 1e3  # of a step: what is asked for is waited for


def forced(grammars: Masks, text: bytes, most: int = 9, request: str = "f", step_s: float = LONG_S) -> bytes:
    [found] = grammars.forced([AnswerSoFar(request, WORDS, list(text))], most, step_s, 1)
    return bytes(found)


def test_what_a_grammar_forces_is_known_with_the_masks_after_it(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(masks, "FORCED_S", masks.WALL_S)
    assert forced(grammars, b"-", request="other") == b""
    assert forced(grammars, b"7", most=5) == b""
    assert forced(grammars, b"7e", most=5) == b"le"
    assert forced(grammars, b"7elep", most=5) == b"hants"
    found = grammars.take(with_drafts(draw(WORDS, list(b"7elep"), "f"), b"hants"))
    assert [set(np.flatnonzero(mask).tolist()) for mask in found] == [{letter} for letter in b"hants!"]


def test_drafts_that_were_not_forced_are_followed_anew(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(masks, "FORCED_S", masks.WALL_S)
    for length in range(1, 10):
        allowed(grammars, WORDS, "7elephants"[:length])  # until the grammar is known to be cheap
    assert forced(grammars, b"7e") == b"le"
    found = grammars.take(with_drafts(draw(WORDS, list(b"7e"), "f"), b"levat"))
    assert [set(np.flatnonzero(mask).tolist()) for mask in found[2:4]] == [{ord("v"), ord("p")}, {ord("a")}]
    assert all(mask is not masks.LATE for mask in found)


def test_what_is_forced_is_not_waited_for_where_that_saves_little(grammars: Masks, monkeypatch: pytest.MonkeyPatch):
    grammars.take([draw(WORDS, [], "f")])
    waits, receive = list[float](), GrammarProcess.receive

    def told(process: GrammarProcess, timeout_s: float) -> Answer | None:
        waits.append(timeout_s)
        return receive(process, timeout_s)

    monkeypatch.setattr(GrammarProcess, "receive", told)
    assert forced(grammars, b"7m", step_s=1e-6) in (b"", b"ice!")  # what came by itself is taken
    assert max(waits) == 0.0
    monkeypatch.undo()
    assert allowed(grammars, WORDS, "7m", request="f") == {ord("i")}


def test_a_grammar_that_forces_nothing_is_expected_to_go_on_so():
    account = GrammarAccount()
    for _ in range(200):
        account.book_forced(0)
    assert account.num_forced < 0.05 * FORCED_AT_FIRST


def test_masks_that_nobody_takes_any_more_are_kept_as_bits(grammars: Masks):
    grammars.ask([draw(NUMBER, [], "gone")])
    assert END in allowed(grammars, NUMBER, "1", request="there")
    found = grammars._ready["gone"].masks
    assert not isinstance(found, Unsampled)
    [kept] = found
    assert len(kept) <= VOCABULARY.size // 8 + 8
