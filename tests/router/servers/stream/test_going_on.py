"""How an answer whose stream broke off goes on elsewhere: what is asked there, and how its chunks join."""

from typing import Any

import msgspec
import pytest

from router.servers.facts import ServerFacts, ServerKind
from router.servers.forwarded_call import CHAT, COMPLETIONS, AnswerForm, CallBody, ForwardedCall, SaidSoFar
from router.servers.stream.chunks import Rewriter, read_chunk
from router.servers.stream.going_on import (
    DEFAULT_COMPLETION,
    Joint,
    NoWayError,
    SeamKind,
    body_to_go_on,
    way_of,
    with_usage,
)

FACTS = ServerFacts(ServerKind.VLLM, "1", (), takes_token_ids=True, continues_messages=True)
OLD = ServerFacts(ServerKind.OPENAI, "", ())
MESSAGES = [{"role": "user", "content": "hi"}]


def broken(path: str = CHAT, said: SaidSoFar | None = None, num_tokens: int = 2, **fields: Any) -> ForwardedCall:
    """A call of which two tokens came."""
    own = {"messages": MESSAGES} if path == CHAT else {"prompt": "say:"}
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in {**own, **fields}.items()}
    said = said or SaidSoFar([7, 8], [1, 2], ["one ", "two "])
    body = CallBody(path, raw, AnswerForm.CHUNKS)
    return ForwardedCall("c", body, Rewriter("id", "model"), num_tokens=num_tokens, said=said)


def asked(call: ForwardedCall, facts: ServerFacts = FACTS, way: SeamKind | None = None) -> dict[str, Any]:
    body = body_to_go_on(call, way or way_of(call, facts), facts)
    return {"path": body.path, **{name: msgspec.json.decode(value) for name, value in body.fields.items()}}


def test_token_ids_come_first_then_text_then_a_message():
    assert way_of(broken(), FACTS) is SeamKind.IDS
    without_ids = SaidSoFar([], [], ["one ", "two "])
    assert way_of(broken(said=without_ids), FACTS) is SeamKind.MESSAGE
    assert way_of(broken(COMPLETIONS, said=without_ids), FACTS) is SeamKind.TEXT
    assert way_of(broken(), OLD) is SeamKind.REPLAY
    assert way_of(broken(COMPLETIONS), OLD) is SeamKind.TEXT


@pytest.mark.parametrize(
    ("fields", "way"),
    [
        ({"tools": [{}]}, SeamKind.REPLAY),
        ({"tools": []}, SeamKind.IDS),
        ({"response_format": {"type": "text"}}, SeamKind.IDS),
        ({"response_format": {"type": "json_object"}}, SeamKind.REPLAY),
        ({"logprobs": True}, SeamKind.REPLAY),
        ({"temperature": 0, "presence_penalty": 1.0}, SeamKind.REPLAY),
        ({"temperature": 1, "presence_penalty": 1.0}, SeamKind.IDS),
        ({"temperature": 0, "presence_penalty": 0.0}, SeamKind.IDS),
        ({"stop": ["x"]}, SeamKind.MESSAGE),
        ({"stop": ["x"], "continue_final_message": True}, SeamKind.REPLAY),
    ],
    ids=str,
)
def test_what_an_answer_keeps_to_from_its_first_token_on_is_made_anew(fields: dict[str, Any], way: SeamKind):
    assert way_of(broken(**fields), FACTS) is way


def test_tokens_that_were_not_all_told_are_no_ids():
    assert way_of(broken(num_tokens=3), FACTS) is SeamKind.MESSAGE


def test_there_is_no_way_for_several_choices_or_what_cannot_be_compared():
    several = broken()
    several.num_choices = 2
    for call in (several, broken(said=SaidSoFar(can_be_compared=False))):
        with pytest.raises(NoWayError):
            way_of(call, FACTS)


def test_a_chat_by_ids_is_a_completion_of_what_is_left():
    assert asked(broken(max_tokens=10, min_tokens=5, temperature=0)) == {
        "path": COMPLETIONS,
        "prompt": [7, 8, 1, 2],
        "max_tokens": 8,
        "min_tokens": 3,
        "temperature": 0,
    }
    assert asked(broken(max_tokens=2))["max_tokens"] == 1, "none is what no server takes"


def test_a_chat_without_a_limit_has_the_room_of_the_model():
    call = broken()
    call.max_context, call.bound = 100, 1000
    assert asked(call)["max_tokens"] == 100 - 2 - 2
    call.bound = 50
    assert asked(call)["max_tokens"] == 48


def test_text_goes_on_behind_the_prompt():
    call = broken(COMPLETIONS)
    found = asked(call, OLD)
    assert (found["path"], found["prompt"]) == (COMPLETIONS, "say:one two ")
    assert found["max_tokens"] == DEFAULT_COMPLETION - 2, "the default would begin anew"


def test_a_message_goes_on_as_the_last_one():
    found = asked(broken(said=SaidSoFar([], [], ["one "])), FACTS)
    assert found["messages"] == [*MESSAGES, {"role": "assistant", "content": "one "}]
    assert (found["continue_final_message"], found["add_generation_prompt"]) == (True, False)


def test_what_is_made_anew_is_asked_for_as_it_was():
    call = broken(max_tokens=10)
    assert body_to_go_on(call, SeamKind.REPLAY, FACTS) is call.body


def joined(joint: Joint, *texts: str, finish: str | None = None) -> list[str | None]:
    """What the client gets of chunks with these texts: the last one ends the answer."""
    found = list[str | None]()
    for number, text in enumerate(texts):
        ends = finish if number == len(texts) - 1 else None
        data = msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": ends}]})
        came = joint.join(read_chunk(data), data)
        found.append(None if came is None else msgspec.json.decode(came)["choices"][0]["delta"]["content"])
    return found


def test_what_the_client_has_already_is_left_out_however_it_is_cut():
    assert joined(Joint(broken(), SeamKind.REPLAY), "one", " two th", "ree") == [None, "th", "ree"]
    assert joined(Joint(broken(), SeamKind.REPLAY), "one two ", "three") == [None, "three"]


def test_an_answer_that_is_another_one_is_not_passed_off_as_the_same():
    with pytest.raises(NoWayError):
        joined(Joint(broken(), SeamKind.REPLAY), "one ", "too")
    with pytest.raises(NoWayError):
        joined(Joint(broken(), SeamKind.REPLAY), "one ", finish="stop")


def test_tokens_before_the_seam_count_as_answer():
    data = msgspec.json.encode({"usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}})
    assert msgspec.json.decode(with_usage(data, 4, None))["usage"] == {
        "prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 17,
    }  # fmt: skip
    assert msgspec.json.decode(with_usage(data, 4, 10))["usage"]["total_tokens"] == 19
    assert with_usage(b'{"usage":null}', 4, None) == b'{"usage":null}'
