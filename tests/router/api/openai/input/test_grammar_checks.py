"""Which grammars are refused, what checking them costs others, and what is remembered."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import convert

from engines.grammars.process import GrammarProcess, Vocabulary
from engines.grammars.protocol import ChildLost
from mesh.wire.requests import FailureCode
from router.api.errors import ApiError
from router.api.openai.input import grammar_checks
from router.api.openai.input.bodies import ChatBody
from router.api.openai.input.grammar_checks import LIMITS, GrammarChecks
from router.api.openai.input.grammars import MAX_GRAMMAR_BYTES, Grammar, grammar_of
from router.api.openai.input.parsing import parse_body
from router.api.openai.input.turns import Turns
from router.generation import Fault, Overloaded, RequestFailed
from tests.work import num_lines_run

FOLDER = Path(__file__).parents[5] / "deploy/models/byte-llama"
ENDLESS = {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(FOLDER, 258, (257,))


@pytest.fixture(scope="module")
def process(vocabulary):
    """Checks the grammars of all tests, as that of a gateway checks those of all its clients."""
    made = GrammarProcess(vocabulary)
    yield made
    made.close()


@pytest.fixture
def checks(vocabulary, process, monkeypatch):
    made = GrammarChecks(vocabulary)
    monkeypatch.setattr(made, "_process", process)
    yield made
    made._threads.shutdown()


def lark(text: str) -> Grammar:
    return Grammar("structured_outputs.grammar", json.dumps({"grammars": [{"lark_grammar": text}]}))


def schema(value: object) -> Grammar:
    return Grammar("structured_outputs.json", json.dumps({"grammars": [{"json_schema": value}]}))


def nested(depth: int, key: str = "items") -> dict[str, object]:
    value: dict[str, object] = {"type": "integer"}
    for _ in range(depth):
        value = {"type": "array", key: value}
    return value


HOSTILE = {
    "for ever": ENDLESS,
    "itself": {"$ref": "#"},
    "a circle": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "elsewhere": {"$ref": "https://example.com/schema.json"},
    "a file": {"$ref": "file:///etc/passwd"},
    "nowhere": {"$ref": "#/$defs/none"},
    "never": {"enum": []},
    "contradiction": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "no type": {"type": "nothing"},
    "a number for a type": {"type": 5},
    "a list of properties": {"type": "object", "properties": []},
    "negative length": {"type": "string", "minLength": -1},
    "intersections": {"allOf": [{"type": "string", "pattern": f"(.*{letter}.{{9}})"} for letter in "abcdef"]},
    "a look-ahead": {"type": "string", "pattern": "(?=a)b"},
    "a broken pattern": {"type": "string", "pattern": "[a-"},
    "a lone surrogate": {"const": "\ud800"},
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_schema_that_cannot_be_followed_is_refused_with_its_parameter(checks, name):
    with pytest.raises(ApiError) as caught:
        await checks.check(schema(HOSTILE[name]), "somebody")
    assert caught.value.status == 400
    assert caught.value.param == "structured_outputs.json"
    assert len(caught.value.message) < 500


BOUNDED = {
    "billions of characters": {"type": "string", "minLength": 10**9},
    "billions of items": {"type": "array", "items": {"type": "integer"}, "minItems": 10**6, "maxItems": 10**9},
    "a thousand words": {"enum": [f"value-{i * 7919}" for i in range(1000)]},
    "deep arrays": nested(50),
    "powers": {
        "$defs": {
            **{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(24)},
            "d24": ENDLESS,
        },
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.parametrize("name", BOUNDED)
async def test_a_large_schema_is_followed_or_refused(checks, name):
    [answer] = await asyncio.gather(checks.check(schema(BOUNDED[name]), "somebody"), return_exceptions=True)
    assert not isinstance(answer, ApiError) or answer.status == 400
    assert (await checks.check(lark('start: "a"'), "somebody")).text


@pytest.mark.parametrize(
    "text",
    ["start: start", "start: s\ns: s s", "start: x", "start: /(?!a)b/", "start: @other", "%llguidance {", "", "\0"],
)
async def test_a_hostile_lark_grammar_is_refused(checks, text):
    with pytest.raises(ApiError):
        await checks.check(lark(text), "somebody")


async def test_what_is_known_is_not_checked_again(checks):
    for _ in range(3):
        assert (await checks.check(lark('start: "a"'), "a")).text == lark('start: "a"').text
        with pytest.raises(ApiError):
            await checks.check(lark("start: x"), "b")
    assert checks._num_checks == 2


async def test_one_text_that_many_ask_for_is_checked_once(checks):
    await asyncio.gather(*[checks.check(lark('start: "b"'), f"client {i}") for i in range(50)])
    assert checks._num_checks == 1


async def test_memory_of_grammars_is_bounded(checks, monkeypatch):
    monkeypatch.setattr(grammar_checks, "MAX_KNOWN", 3)
    for letter in "abcdef":
        await checks.check(lark(f'start: "{letter}"'), "somebody")
    assert len(checks._known) == 3


async def test_a_client_with_many_new_grammars_waits_for_others(checks, monkeypatch):
    monkeypatch.setattr(checks, "_ask", lambda text: order.append(text) or "")
    order: list[str] = []
    jobs = [checks.check(lark(f"flood {i}"), "flood") for i in range(5)] + [checks.check(lark("honest"), "honest")]
    await asyncio.gather(*jobs)
    assert lark("honest").text in order[:3]


async def test_a_client_has_a_bounded_number_of_checks(checks, monkeypatch):
    monkeypatch.setattr(checks, "_ask", lambda text: "")
    flood = [checks.check(lark(f"flood {i}"), "flood") for i in range(LIMITS.max_of_one + 3)]
    answers = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 2
    await checks.check(lark("another"), "flood")


def test_who_gave_up_is_passed_over():
    async def play() -> None:
        turns, loop = Turns(LIMITS), asyncio.get_running_loop()
        gone, there = loop.create_future(), loop.create_future()
        turns.join("a", gone)
        turns.join("a", there)
        gone.cancel()
        assert turns.next() is there
        assert turns.next() is None

    asyncio.run(play())


def body(**outputs: object) -> ChatBody:
    return convert({"messages": [{"role": "user", "content": "hi"}], "structured_outputs": outputs}, ChatBody)


@pytest.mark.parametrize(
    "outputs",
    [
        {"json": "[" * 20_000},
        {"json": '{"a":' * 20_000},
        {"json": '{"minimum": NaN}'},
        {"json": '{"minimum": ' + "9" * 5000 + "}"},
        {"json": {"enum": ["x" * 40_000]}},
        {"json": '"' + "x" * 40_000 + '"'},
        {"regex": "x" * 40_000},
        {"grammar": "x" * 40_000},
        {"choice": ["x" * 100] * 1000},
    ],
    ids=str,
)
def test_a_form_that_is_too_large_or_no_json_is_refused_before_it_is_checked(outputs):
    with pytest.raises(ApiError) as caught:
        grammar_of(body(**outputs))
    assert caught.value.status == 400


async def test_a_hostile_schema_is_400_and_the_next_request_is_served(gateway):
    answer = await gateway.chat(structured_outputs={"json": ENDLESS})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "structured_outputs.json"
    assert error["message"] == "structured_outputs.json: cannot be followed: it takes too much CPU time"
    assert (await gateway.chat()).status_code == 200


async def test_what_an_engine_finds_too_dear_is_refused_from_then_on(gateway):
    reason = "the grammar cannot be followed: it takes too much CPU time"
    gateway.router.script = lambda _: [RequestFailed(reason, Fault.CLIENT, FailureCode.GRAMMAR)]
    for _ in range(2):
        answer = await gateway.chat(structured_outputs={"regex": "[0-9]{3}"})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "structured_outputs.regex"
    assert len(gateway.router.specs) == 1


async def test_a_grammar_is_not_blamed_for_a_process_that_is_gone(checks, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checks._process, "receive", lambda _: ChildLost(1))
        with pytest.raises(Overloaded):
            await checks.check(lark('start: "c"'), "somebody")
    checks._process.close()
    assert (await checks.check(lark('start: "c"'), "somebody")).text


def test_a_deep_schema_costs_no_more_than_a_flat_one():
    bodies = [body(json=nested(200)), body(json={"enum": list(range(400))})]
    deep, flat = [num_lines_run(lambda body=body: grammar_of(body)) for body in bodies]
    assert deep < 2 * flat


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FORMS = st.sampled_from(["json", "json_object", "regex", "choice", "grammar"])
FORMATS = st.fixed_dictionaries(
    {"type": st.sampled_from(["json_schema", "json_object", "text"])},
    optional={"json_schema": VALUES | st.fixed_dictionaries({"schema": VALUES})},
)


def form_of(data: bytes) -> tuple[Grammar | None, ApiError | None]:
    try:
        return grammar_of(parse_body(data, ChatBody)), None
    except ApiError as error:
        return None, error


@settings(suppress_health_check=[HealthCheck.too_slow])  # how fast inputs are made on a busy machine says nothing
@given(st.dictionaries(FORMS, VALUES, max_size=2), st.none() | FORMATS)
def test_whatever_is_asked_for_is_a_bounded_text_or_refused(outputs, wanted):
    messages = [{"role": "user", "content": "hi"}]
    data = json.dumps({"messages": messages, "structured_outputs": outputs, "response_format": wanted}).encode()
    grammar, refusal = form_of(data)
    assert refusal is None or refusal.status == 400
    assert grammar is None or len(grammar.text.encode()) <= MAX_GRAMMAR_BYTES
