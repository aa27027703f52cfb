"""What is made of a stream: times of the first and last output, gaps, usage, and what went wrong."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bench.load.client.answer import Answer
from tests.bench.load.client.test_sse import cut


def event(choices: object = (), **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": list(choices), **more}).encode() + b"\n\n"  # type: ignore[call-overload]


def text(words: str, index: int = 0) -> dict[str, object]:
    return {"index": index, "text": words, "finish_reason": None}


def delta(**fields: object) -> dict[str, object]:
    return {"index": 0, "delta": fields}


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
DONE = b"data: [DONE]\n\n"


def answered(*reads: tuple[float, bytes], status: int = 200) -> Answer:
    answer = Answer(keeps_text=True)
    answer.head(status, {})
    for now, data in reads:
        answer.body(data, now)
    answer.end(reads[-1][0] if reads else 0.0)
    return answer


def test_times_are_those_of_events_with_output():
    answer = answered(
        (1.0, event([delta(role="assistant", content="")])),
        (2.0, event([delta(content="one")])),
        (2.5, event([delta(content=" two")])),
        (4.0, event([delta(content=" three")])),
        (5.0, event([{"index": 0, "delta": {}, "finish_reason": "length"}])),
        (6.0, event(usage=USAGE) + DONE),
    )
    assert (answer.first_at, answer.last_at, answer.gaps_s) == (2.0, 5.0, [0.5, 1.5])
    assert answer.num_chunks == 3
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 5)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert answer.is_whole
    assert "".join(answer.texts) == "one two three"


def test_thoughts_and_calls_are_output():
    answer = answered(
        (1.0, event([delta(reasoning_content="hm")])),
        (2.0, event([delta(tool_calls=[{"index": 0}])])),
        (3.0, event([delta(content=[{"type": "text"}])]) + DONE),
    )
    assert (answer.first_at, answer.last_at, answer.num_chunks) == (1.0, 3.0, 3)


def test_gaps_are_within_a_choice():
    answer = answered(
        (1.0, event([text("a", 0)])), (1.5, event([text("b", 1)])), (3.0, event([text("c", 0), text("d", 1)]) + DONE)
    )
    assert answer.gaps_s == [2.0, 1.5]
    assert answer.num_chunks == 4


def test_an_answer_may_say_nothing():
    answer = answered((1.0, event([text("")])), (2.0, DONE))
    assert answer.is_whole
    assert (answer.first_at, answer.last_at, answer.num_chunks) == (1.0, 1.0, 0)


def test_an_error_in_midstream_is_told_and_not_whole():
    openai = answered((1.0, event([text("a")])), (2.0, b'data: {"error": {"message": "lost"}}\n\n' + DONE))
    vllm = answered((1.0, event([text("a")])), (2.0, b'data: {"object": "error", "message": "lost"}\n\n' + DONE))
    for answer in (openai, vllm):
        assert not answer.is_whole
        assert answer.problem == "lost"
        assert answer.first_at == 1.0


def test_a_stream_without_its_end_is_not_whole():
    assert not answered((1.0, event([text("a")]))).is_whole


def test_an_event_that_is_no_chunk_is_told():
    answer = answered((1.0, b"data: {broken\n\n" + DONE))
    assert not answer.is_whole
    assert "{broken" in str(answer.problem)


def test_a_refusal_says_why_in_the_servers_words():
    assert answered((1.0, b'{"error": {"message": "too many"}}'), status=429).problem == "too many"
    assert answered((1.0, b'{"error"'), (2.0, b': "plain"}'), status=400).problem == "plain"
    assert answered((1.0, b"<html>Bad Gateway\n</html>"), status=502).problem == "<html>Bad Gateway </html>"


@given(places=st.lists(st.integers(0, 10_000), max_size=20))
def test_reads_may_be_cut_anywhere(places: list[int]):
    stream = b"".join(event([text(f"wörd{index} ")]) for index in range(9)) + event(usage=USAGE) + DONE
    answer = answered(*((float(now), part) for now, part in enumerate(cut(stream, places))))
    assert answer.is_whole
    assert answer.num_chunks == 9
    assert len(answer.gaps_s) == 8
    assert "".join(answer.texts) == "".join(f"wörd{index} " for index in range(9))
    assert answer.first_at is not None
    assert answer.last_at is not None
    assert sum(answer.gaps_s) == answer.last_at - answer.first_at
