"""Streams that break off in the middle go on at another server, and the client is told how."""

import json

import pytest

from tests.router.front import CHAT, HELLO, front_of, said_in
from tests.router.servers.nasty import STREAM, chunk, event, serving

WORDS = ["one ", "two ", "three ", "four ", "five ", "six "]
PROMPT_IDS = [101, 102]


def model(asked):
    """Return the words that the model still has to say, and whether it is a chat: it always says the same."""
    body = asked.body
    if "prompt" in body:
        known = body["prompt"]
        done = len(known) - len(PROMPT_IDS) if isinstance(known, list) else known.count(" ")
        return WORDS[done:], False
    last = body["messages"][-1]
    return WORDS[last["content"].count(" ") if last["role"] == "assistant" else 0 :], True


def says(number=None, *, ids=True, words=None, reasons=0, is_once=False):
    """Answer as vLLM does. ``number``: of words, after which it breaks off, always or once."""
    broke = []

    async def behave(asked, writer):
        left, is_chat = model(asked)
        left = (words or left)[: asked.body.get("max_tokens")]
        begin = len(WORDS) - len(left)
        writer.write(STREAM)
        if is_chat:
            first = chunk()
            writer.write(event({**first, "prompt_token_ids": PROMPT_IDS} if ids else first))
        most = None if is_once and broke else number
        broke.append(most)
        for index, word in enumerate(left[:most]):
            own = {"token_ids": [begin + index]} if ids else {}
            is_reasoning = index < reasons
            if is_chat:
                made = chunk(word, **own)
                if is_reasoning:
                    made["choices"][0]["delta"] = {"reasoning_content": word}
            else:
                made = {"id": "t", "object": "text_completion", "created": 2, "model": "m",
                        "choices": [{"index": 0, "text": word, "finish_reason": None, **own}]}  # fmt: skip
                if ids and index == 0:
                    made["choices"][0]["prompt_token_ids"] = PROMPT_IDS
            writer.write(event(made))
        if most is not None:
            await writer.drain()
            writer.close()
            return
        end = {"delta": {}} if is_chat else {"text": ""}
        usage = {"prompt_tokens": 2 + begin, "completion_tokens": len(left), "total_tokens": 2 + begin + len(left)}
        tail = {"id": "theirs", "object": "o", "created": 1, "model": "m"}
        writer.write(event({**tail, "choices": [{"index": 0, **end, "finish_reason": "stop"}]}))
        writer.write(event({**tail, "choices": [], "usage": usage}) + event(b"[DONE]") + b"0\r\n\r\n")

    return behave


@pytest.fixture
def go(tmp_path):
    async def go(first, second, kind="vllm", path="/v1/chat/completions", **body):
        async with (
            serving(first, second) as servers,
            front_of(tmp_path, *servers, kind=kind, policy="round_robin") as front,
        ):
            response = await front.chat(path, stream=True, **body)
            assert response.status_code == 200
            lines = [part.removeprefix("data: ") for part in response.text.split("\n\n") if part]
            assert lines.pop() == "[DONE]"
            events = [json.loads(line) for line in lines]
            assert len(front.router.calls) == 0
            return events, servers, front.records

    return go


def text_of(events):
    return "".join(said_in(one) or "".join(c.get("text", "") for c in one.get("choices", [])) for one in events)


def seams_of(events):
    return [one["meshserve"]["seams"] for one in events if "meshserve" in one]


async def test_with_token_ids_the_answer_is_the_same(go):
    usage = {"include_usage": True}
    events, servers, records = await go(says(2), says(), max_tokens=6, top_k=3, stream_options=usage)
    assert text_of(events) == "".join(WORDS)
    assert seams_of(events) == [[{"at": 2, "by": "ids"}]]
    asked = servers[1].asked[0]
    assert asked.path == "/v1/completions"
    assert asked.body["prompt"] == [*PROMPT_IDS, 0, 1]
    assert (asked.body["max_tokens"], asked.body["top_k"], "messages" in asked.body) == (4, 3, False)
    assert {(one["id"], one["object"], one["model"]) for one in events[:-1]} == {
        (events[0]["id"], "chat.completion.chunk", CHAT)
    }
    assert not any("token_ids" in json.dumps(one) for one in events)
    assert events[-1]["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}
    assert [(record.outcome, record.output_tokens, record.attempts) for record in records] == [("finished", 6, 2)]


@pytest.mark.parametrize("ids", [True, False])
async def test_the_default_limit_of_completions_does_not_begin_anew(go, ids):
    _, servers, _ = await go(says(2, ids=ids), says(ids=ids), path="/v1/completions", prompt="a b ")
    assert servers[1].asked[0].body["max_tokens"] == 14


async def test_an_answer_may_break_off_more_than_once(go):
    events, servers, _ = await go(says(2, is_once=True), says(2, is_once=True), max_tokens=6)
    assert text_of(events) == "".join(WORDS)
    assert [seam["at"] for seam in seams_of(events)[0]] == [2, 4]
    assert sum(len(server.asked) for server in servers) == 3


async def test_without_ids_the_text_goes_on_as_a_message(go):
    events, servers, _ = await go(says(2, ids=False), says(ids=False), kind="sglang")
    assert text_of(events) == "".join(WORDS)
    assert seams_of(events) == [[{"at": 2, "by": "message"}]]
    body = servers[1].asked[0].body
    assert body["messages"] == [*HELLO, {"role": "assistant", "content": "one two "}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


async def test_stop_strings_go_on_by_text_as_some_of_it_may_be_held_back(go):
    events, _, _ = await go(says(2), says(), stop=["x"])
    assert seams_of(events) == [[{"at": 2, "by": "message"}]]


async def test_completions_tell_the_ids_of_their_prompt_with_the_first_choice(go):
    events, servers, _ = await go(says(2), says(), path="/v1/completions", prompt="", messages=None)
    assert (text_of(events), seams_of(events)) == ("".join(WORDS), [[{"at": 2, "by": "ids"}]])
    assert servers[1].asked[0].body["prompt"] == [*PROMPT_IDS, 0, 1]
    assert not any("token_ids" in json.dumps(one) for one in events)


async def test_completions_go_on_by_text(go):
    path = "/v1/completions"
    events, servers, _ = await go(says(2, ids=False), says(ids=False), "openai", path, prompt="", messages=None)
    assert text_of(events) == "".join(WORDS)
    assert servers[1].asked[0].body["prompt"] == "one two "
    assert seams_of(events) == [[{"at": 2, "by": "text"}]]


@pytest.mark.parametrize("special", [{"logprobs": True}, {"response_format": {"type": "json_object"}}])
async def test_what_nobody_can_go_on_with_is_made_anew(go, special):
    events, servers, _ = await go(says(2), says(words=["one t", "wo three ", "four ", "five ", "six "]), **special)
    assert text_of(events) == "".join(WORDS)
    assert seams_of(events) == [[{"at": 2, "by": "replay"}]]
    assert servers[1].asked[0].body["messages"] == HELLO


async def test_the_least_that_is_asked_for_counts_what_came(go):
    for least, left in ((5, 3), (1, 0)):
        _, servers, _ = await go(says(2), says(), max_tokens=6, min_tokens=least)
        assert servers[1].asked[0].body["min_tokens"] == left


@pytest.mark.parametrize(("temperature", "way"), [(0, "replay"), (0.0, "replay"), (1, "ids")])
async def test_penalties_that_count_the_answer_alone_begin_anew_where_that_is_the_same(go, temperature, way):
    events, _, _ = await go(says(2), says(), presence_penalty=1, temperature=temperature)
    assert (text_of(events), seams_of(events)) == ("".join(WORDS), [[{"at": 2, "by": way}]])


async def test_an_end_that_comes_with_the_last_text_is_passed_on(go):
    async def whole_at_once(asked, writer):
        writer.write(STREAM + event(chunk("one ")) + event(chunk("two ", "stop")) + event(b"[DONE]") + b"0\r\n\r\n")

    events, _, _ = await go(says(2, ids=False), whole_at_once, kind="openai")
    assert (text_of(events), events[-1]["choices"][0]["finish_reason"]) == ("one two ", "stop")
    assert seams_of(events) == [[{"at": 2, "by": "replay"}]]


async def test_with_several_choices_nobody_goes_on(go):
    events, servers, _ = await go(says(2), says(), n=2)
    assert "no other server can go on" in events[-1]["error"]["message"]
    assert not servers[1].asked


async def test_a_server_that_brought_nothing_leaves_no_seam(go):
    events, _, _ = await go(says(2, is_once=True), says(0))
    assert (text_of(events), seams_of(events)) == ("".join(WORDS), [[{"at": 2, "by": "ids"}]])


async def test_reasoning_is_made_anew(go):
    events, _, _ = await go(says(3, reasons=2), says(reasons=2))
    reasoned = "".join(c["delta"].get("reasoning_content", "") for one in events for c in one["choices"])
    assert (reasoned, text_of(events)) == ("one two ", "three four five six ")


async def test_another_answer_ends_the_stream_with_an_error(go):
    events, _, records = await go(says(2, ids=False), says(words=["One ", "two "]), kind="openai")
    assert text_of(events) == "one two "
    assert "another one" in events[-1]["error"]["message"]
    assert events[-1]["error"]["type"] == "server_error"
    assert [record.outcome for record in records] == ["failed"]


async def test_an_end_that_was_said_is_the_end_though_the_stream_breaks_off(go):
    async def ends(asked, writer):
        writer.write(STREAM + event(chunk("one ")) + event(chunk("", "length")))
        await writer.drain()
        writer.close()

    events, servers, records = await go(ends, says())
    assert text_of(events) == "one "
    assert (len(servers[1].asked), records[0].outcome) == (0, "finished")
