"""Which tokens a grammar leaves, against Python's own reading of what was written."""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from llguidance import LLMatcher

import engines.grammars
from engines.batch import Draw
from engines.grammars import GrammarError, Grammars
from engines.models.config import ModelConfig
from mesh.messages import Sampling
from tests.seeds import seeds

FOLDER = Path(__file__).parents[2] / "deploy/models/byte-llama"  # a token is a byte
VOCABULARY = ModelConfig.load(FOLDER).vocab_size
END = 257
PROMPT = [256, 65]
NUMBER = LLMatcher.grammar_from_regex("-?[1-9][0-9]{0,3}")
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


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(FOLDER, VOCABULARY, [END])


def draw(grammar: str, generated: list[int], request: str = "r") -> Draw:
    sampling = Sampling(max_tokens=99, seed=0, grammar=grammar)
    return Draw(sampling, [*PROMPT, *generated], len(PROMPT), len(PROMPT) + len(generated), request)


def allowed(grammars: Grammars, grammar: str, text: str, request: str = "r") -> set[int]:
    return set(np.flatnonzero(grammars.allowed(draw(grammar, list(text.encode()), request))).tolist())


def written(grammars: Grammars, grammar: str, choose: random.Random, most: int = 4000) -> str:
    """Any answer, each token as likely as the others that may come."""
    generated: list[int] = []
    while len(generated) < most:
        may = np.flatnonzero(grammars.allowed(draw(grammar, generated))).tolist()
        token = choose.choice(may)
        if token == END:
            return bytes(generated).decode()
        generated.append(token)
    raise AssertionError(f"no end after {bytes(generated)!r}")


def test_an_answer_may_end_where_it_is_whole_and_nowhere_else(grammars: Grammars) -> None:
    digits = set(b"0123456789")
    assert allowed(grammars, NUMBER, "") == digits - {ord("0")} | {ord("-")}
    assert allowed(grammars, NUMBER, "-") == digits - {ord("0")}
    assert allowed(grammars, NUMBER, "-1") == digits | {END}
    assert allowed(grammars, NUMBER, "-1234") == {END}


@pytest.mark.parametrize("seed", seeds(8))
def test_whatever_is_drawn_is_what_was_asked_for(grammars: Grammars, seed: int) -> None:
    choose = random.Random(seed)
    made = json.loads(written(grammars, LLMatcher.grammar_from_json_schema(json.dumps(SCHEMA)), choose))
    assert made.keys() - {"tags"} == {"name", "size"}
    assert len(made["name"]) <= 4
    assert made["size"] is None or 0 <= made["size"] <= 300
    assert set(made.get("tags", [])) <= {"a", "bc"}
    assert re.fullmatch("-?[1-9][0-9]{0,3}", written(grammars, NUMBER, choose))


@pytest.mark.parametrize("seed", seeds(3))
def test_requests_that_take_turns_or_come_back_find_their_place(
    grammars: Grammars, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer places than requests, some begin anew, and with other tokens than before."""
    monkeypatch.setattr(engines.grammars, "MAX_FOLLOWED", 3)
    choose, texts = random.Random(seed), ["-12", "7", "1234", "-", "99"]
    expected = {
        text[:length]: allowed(Grammars(FOLDER, VOCABULARY, [END]), NUMBER, text[:length])
        for text in texts
        for length in range(len(text) + 1)
    }
    for _ in range(60):
        text = choose.choice(texts)
        part = text[: choose.randrange(len(text) + 1)]
        assert allowed(grammars, NUMBER, part, request=choose.choice("abcdef")) == expected[part]


def test_what_does_not_keep_to_its_grammar_fails_alone(grammars: Grammars) -> None:
    with pytest.raises(GrammarError, match="does not keep to"):
        allowed(grammars, NUMBER, "x")
    with pytest.raises(GrammarError, match=r"cannot be followed: .* unclosed character class$"):
        allowed(grammars, LLMatcher.grammar_from_lark("start: /[a-/"), "")
    assert END in allowed(grammars, NUMBER, "5")


def test_a_tokenizer_that_cannot_follow_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(GrammarError, match="this model's tokenizer cannot follow grammars"):
        Grammars(tmp_path, VOCABULARY, [END]).allowed(draw(NUMBER, []))
