"""One call to a server: what it is sent, and how its answer ends, whatever comes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from mesh.wire.requests import FailureCode, FinishReason
from router.servers import calling
from router.servers.calling import Calling, body_for
from router.servers.forwarded_call import CHAT, AnswerForm, CallBody, ForwardedCall
from router.servers.stream.chunks import Rewriter

EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
DONE = b"data: [DONE]\n\n"


@dataclass
class Ends:
    """Keeps what it is told. ``wants``: so many times more."""

    wants: int = 99
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    cached: int = 0
    reason: str = ""
    code: FailureCode | None = None
    retry_after_s: float | None = None
    has_no_model: bool = False

    def got(self, tokens: list[int], finish: FinishReason | None, num_cached: int) -> bool:
        self.tokens += tokens
        self.finish, self.cached, self.wants = finish, num_cached, self.wants - 1
        return self.wants > 0

    def refused(self, reason: str, retry_after_s: float | None) -> None:
        self.reason, self.retry_after_s = reason, retry_after_s

    def lacks_model(self, reason: str) -> None:
        self.reason, self.has_no_model = reason, True

    def failed(self, reason: str, code: FailureCode) -> None:
        self.reason, self.code = reason, code


@dataclass
class Ongoing:
    """The connection: was it stopped, or is it free again?"""

    is_stopped: bool = False
    is_done: bool = False

    def stop(self) -> None:
        self.is_stopped = True

    def done(self) -> None:
        self.is_done = True


@dataclass
class Run:
    """A call that is answered with ``data``."""

    call: ForwardedCall
    ends: Ends
    ongoing: Ongoing
    calling: Calling

    @property
    def got(self) -> bytes:
        """What the client gets."""
        return b"".join(piece for _, piece in self.call.pieces)


def begin(
    form: AnswerForm = AnswerForm.CHUNKS, *, wants: int = 99, bound: int = 1000, num_choices: int = 1, **wishes: bool
) -> Run:
    body = CallBody(CHAT, {}, form, **wishes)
    call = ForwardedCall("r", body, Rewriter("ours", "chat"), bound=bound, num_choices=num_choices)
    ends, ongoing = Ends(wants), Ongoing()
    attempt = Calling(call, ends)
    attempt.ongoing = ongoing  # type: ignore[assignment]
    return Run(call, ends, ongoing, attempt)


def stream(*pieces: bytes, ends: bool = True, headers: dict[str, str] = EVENTS, **settings: Any) -> Run:
    run = begin(**settings)
    run.calling.head(200, headers)
    for piece in pieces:
        run.calling.data(piece)
    if ends:
        run.calling.end()
    return run


def whole(status: int, *pieces: bytes, form: AnswerForm = AnswerForm.WHOLE, bound: int = 1000, **headers: str) -> Run:
    run = begin(form, bound=bound)
    run.calling.head(status, {name.replace("_", "-"): value for name, value in headers.items()})
    for piece in pieces:
        run.calling.data(piece)
    run.calling.end()
    return run


def chunk(text: str = "", finish: str | None = None, **more: Any) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": finish} | more.pop("choice", {})
    return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]} | more).encode() + b"\n\n"


def usage(completion: int, cached: int = 0) -> bytes:
    told = {"prompt_tokens": 9, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": cached}}
    return chunk(choices=[], usage=told)


# --- what is sent -----------------------------------------------------------------------------------------------------


def sent(
    options: Any = None, *, form: AnswerForm = AnswerForm.CHUNKS, with_token_ids: bool = False, **more: bytes
) -> dict[str, Any]:
    raw = {"model": b'"a"', "top_k": b"5"} | more | ({} if options is None else {"stream_options": options})
    fields = {name: msgspec.Raw(value) for name, value in raw.items()}
    return json.loads(body_for(CallBody(CHAT, fields, form), "org/model", with_token_ids=with_token_ids))


def test_a_server_gets_its_own_name_and_says_the_usage():
    plain = {"model": "org/model", "top_k": 5}
    assert sent(form=AnswerForm.WHOLE, with_token_ids=True) == plain
    assert sent() == sent(b"null") == plain | {"stream_options": {"include_usage": True}}
    assert sent(with_token_ids=True)["return_token_ids"] is True
    assert sent(with_token_ids=True, echo=b"false")["return_token_ids"] is True
    assert "return_token_ids" not in sent(with_token_ids=True, echo=b"true"), "vLLM would leave out the echo"
    asked = sent(b'{"include_usage":false,"more":1}')["stream_options"]
    assert asked == {"include_usage": True, "more": 1}
    assert sent(b"7")["stream_options"] == 7


# --- streams ----------------------------------------------------------------------------------------------------------


def test_chunks_are_passed_on_as_ours_with_their_tokens():
    run = stream(chunk("a") + chunk("b")[:9], chunk("b")[9:], chunk("c", "length"), DONE)
    assert (len(run.ends.tokens), run.ends.finish) == (3, FinishReason.LENGTH)
    assert run.got.count(b'"ours"') == 3
    assert (run.call.said.text, run.call.num_tokens) == ("abc", 3)
    assert (run.ongoing.is_done, run.ongoing.is_stopped) == (True, False)
    run.calling.data(chunk("d"))
    run.calling.end()
    assert run.call.num_tokens == 3


def test_a_stream_that_is_done_without_a_reason_has_stopped():
    assert stream(chunk("a"), DONE).ends.finish is FinishReason.STOP
    assert stream(chunk("a", "tool_calls")).ends.finish is FinishReason.STOP
    assert stream(chunk("a"), DONE.rstrip()).ends.finish is FinishReason.STOP


def test_usage_counts_what_had_no_event_and_is_for_those_who_asked():
    run = stream(chunk("a", "stop"), usage(4, cached=2), DONE)
    assert (len(run.ends.tokens), run.ends.cached) == (4, 2)
    assert len(stream(chunk("a", "stop") + usage(4) + DONE).ends.tokens) == 4
    assert b"completion_tokens" not in run.got
    assert b"completion_tokens" in stream(chunk("a", "stop"), usage(4), DONE, wants_usage=True).got
    assert len(stream(chunk("a", "stop"), usage(0), DONE).ends.tokens) == 1
    assert len(stream(chunk("a", "stop"), usage(10**6), DONE, bound=10).ends.tokens) == 10 + calling.MOST_EXTRA


def test_token_ids_are_kept_here_unless_they_were_asked_for():
    with_ids = chunk("ab", "stop", choice={"token_ids": [5, 6]})
    run = stream(with_ids, DONE)
    assert (run.ends.tokens, run.call.said.token_ids) == ([5, 6], [5, 6])
    assert b"token_ids" not in run.got
    assert b"token_ids" in stream(with_ids, DONE, wants_token_ids=True).got
    assert b"token_ids" not in stream(chunk("a", prompt_token_ids=[1]), DONE).got


def test_seams_are_told_at_the_end():
    run = begin()
    run.call.seams.append({"at": 1})
    run.calling.head(200, EVENTS)
    run.calling.data(chunk("a"))
    assert b"seam" not in run.got
    run.calling.data(chunk("b", "stop"))
    assert b"seam" in run.got


def test_an_answer_beyond_its_bound_is_cut_off():
    pieces = [chunk("a")] * (2 + calling.MOST_EXTRA)
    run = stream(*pieces[:-1], ends=False, bound=1)
    assert (run.ends.finish, run.ongoing.is_stopped) == (None, False)
    run.calling.data(pieces[-1])
    assert (run.ends.finish, run.ongoing.is_stopped) == (FinishReason.LENGTH, True)


def test_nobody_is_told_more_than_is_wanted():
    run = stream(chunk("a"), chunk("b"), chunk("c"), wants=2)
    assert (len(run.ends.tokens), run.ends.reason) == (2, "")


def test_events_of_other_apis_are_passed_on_as_they_are():
    for end in (b"event: message_stop\ndata: {}\n\n", b'data: {"type": "response.completed"}\n\n'):
        run = stream(b"event: x\ndata: 1\n\n" + end, form=AnswerForm.EVENTS)
        assert run.got == b"event: x\ndata: 1\n\n" + end
        assert (len(run.ends.tokens), run.ends.finish) == (2, FinishReason.STOP)


@pytest.mark.parametrize("events", [b"", b"event: x\ndata: 1\n\n"])
def test_events_of_other_apis_without_their_last_one_broke_off(events):
    run = stream(events, form=AnswerForm.EVENTS)
    assert (run.ends.finish, run.ends.code) == (None, FailureCode.BROKEN)


@pytest.mark.parametrize("form", [AnswerForm.CHUNKS, AnswerForm.EVENTS])
def test_an_answer_that_is_no_stream_fails(form):
    run = stream(headers={"content-type": "text/html"}, form=form)
    assert (run.ends.code, run.ongoing.is_stopped) == (FailureCode.BROKEN, True)
    assert run.ends.reason == "the answer is not a stream of events, but 'text/html'"


def test_what_breaks_a_stream_fails_it_once():
    broken: Sequence[tuple[Sequence[bytes], str]] = (
        ([chunk("a")], "closed the stream in the middle"),
        ([chunk("a"), b"data: {1\n\n"], "not a chunk of an answer"),
        ([chunk("a"), b'data: {"error": {"message": "too hot"}}\n\n'], "reports an error: too hot"),
    )
    for pieces, said in broken:
        run = stream(*pieces)
        assert said in run.ends.reason
        assert (run.ends.code, run.ongoing.is_stopped, len(run.ends.tokens)) == (FailureCode.BROKEN, True, 1)
        run.calling.broken("later")
        assert said in run.ends.reason


def test_an_answer_that_had_ended_is_whole_though_the_connection_breaks():
    run = stream(chunk("a", "stop"), ends=False)
    run.calling.broken("reset")
    assert (run.ends.finish, run.ends.reason) == (FinishReason.STOP, "")
    run = stream(chunk("a"), ends=False)
    run.calling.broken("reset")
    assert (run.ends.finish, run.ends.reason) == (None, "reset")


def test_an_answer_with_several_choices_has_ended_when_all_have():
    for pieces, is_whole in (([0], False), ([0, 0], False), ([0, 1], True)):
        run = stream(*[chunk("a", "stop", choice={"index": index}) for index in pieces], ends=False, num_choices=2)
        run.calling.broken("reset")
        assert (run.ends.finish is not None, run.ends.reason) == (is_whole, "" if is_whole else "reset")


@pytest.mark.parametrize("most_tokens", [2, 3, None])
def test_an_answer_of_as_many_tokens_as_were_asked_for_lacks_its_end_alone(most_tokens):
    run = stream(chunk("a"), chunk("b"), ends=False)
    run.call.most_tokens = most_tokens
    run.calling.broken("reset")
    is_full = most_tokens == 2
    assert (run.ends.finish, run.ends.reason) == ((FinishReason.LENGTH, "") if is_full else (None, "reset"))
    assert (b'"finish_reason":"length"' in run.got, b'"id":"ours","model":"chat"' in run.got) == (is_full, True)


def test_an_empty_reason_is_no_end():
    run = stream(chunk("a", ""), ends=False)
    run.calling.broken("reset")
    assert (run.ends.finish, run.ends.reason) == (None, "reset")


def test_what_is_stopped_hears_no_more():
    run = stream(chunk("a"), ends=False)
    run.calling.stop()
    run.calling.data(chunk("b"))
    run.calling.broken("reset")
    run.calling.end()
    assert (len(run.ends.tokens), run.ends.reason, run.ongoing.is_stopped) == (1, "", True)


# --- answers in one piece ---------------------------------------------------------------------------------------------


def test_an_answer_in_one_piece_has_the_tokens_that_it_says():
    body = json.dumps({"id": "x", "model": "m", "usage": {"completion_tokens": 7, "prompt_tokens": 3}}).encode()
    run = whole(200, body[:5], body[5:], x_kept="a", server="nginx")
    assert (len(run.ends.tokens), run.call.num_tokens, run.ends.finish) == (7, 7, FinishReason.STOP)
    answer = run.call.answer
    assert answer is not None
    assert (answer.status, answer.headers, json.loads(answer.body)["id"]) == (200, [("x-kept", "a")], "ours")
    assert len(whole(200, b'{"usage": {"completion_tokens": 0}}').ends.tokens) == 1
    assert len(whole(200, b"{}").ends.tokens) == 1
    assert len(whole(200, b'{"usage": {"completion_tokens": 999}}', bound=10).ends.tokens) == 10 + calling.MOST_EXTRA


def test_what_is_no_answer_fails(monkeypatch):
    assert "the answer is 'text/html': not an object" in whole(200, b"<html>", content_type="text/html").ends.reason
    packed = whole(200, b"{}", content_encoding="GZIP")
    assert packed.ends.reason == "the answer is compressed (gzip), which nobody asked for"
    assert (packed.ends.code, packed.call.answer) == (FailureCode.BROKEN, None)
    assert whole(200, b"{}", content_encoding="identity").ends.reason == ""
    monkeypatch.setattr(calling, "MAX_ANSWER", 4)
    assert whole(200, b'{"a"', b":1}").ends.reason == "the answer has more than 4 bytes"
    assert whole(200, b"{  }").ends.reason == ""


@pytest.mark.parametrize("form", AnswerForm)
def test_errors_are_the_servers_or_the_clients(form):
    codes = {
        (400, 413, 422, 499): FailureCode.INVALID,
        (404, 500, 502): FailureCode.STEP,
        (301, 401, 403, 407, 408, 425): FailureCode.BROKEN,
    }
    for statuses, code in codes.items():
        for status in statuses:
            run = whole(status, b'{"error": {"message": "no  such\\npage"}}', form=form, x_kept="a", date="now")
            assert (run.ends.code, run.ends.reason) == (code, f"HTTP {status}: no such page")
            answer = run.call.answer
            assert (answer is None) == (code is FailureCode.BROKEN)
            assert answer is None or (answer.status, answer.headers) == (status, [("x-kept", "a")])


def test_a_model_that_is_not_found_is_told_from_a_path():
    for body, is_model in ((b'{"error": "no model m"}', True), (b'{"detail": "Not Found"}', False)):
        run = whole(404, body)
        assert (run.ends.has_no_model, run.ends.code) == (is_model, None if is_model else FailureCode.STEP)
        assert not whole(403, body).ends.has_no_model


def test_a_server_that_is_busy_says_when_it_is_not():
    for status, header, after_s in ((429, "5", 5.0), (503, "soon", None), (429, "1234567890", None), (503, "", None)):
        run = whole(status, b"", retry_after=header)
        assert (run.ends.code, run.ends.retry_after_s) == (None, after_s)
        assert run.ends.reason == f"HTTP {status}: no reason given"


def test_the_reason_is_where_a_server_redirects_to():
    assert whole(302, b"", location="http://b").ends.reason == "HTTP 302: it redirects to 'http://b'"
    assert whole(400, b"a", location="http://b").ends.reason == "HTTP 400: a"


def test_of_a_long_error_the_beginning_is_enough(monkeypatch):
    monkeypatch.setattr(calling, "MAX_ERROR", 6)
    run = whole(500, b"abc", b"defgh", b"ijk")
    assert (run.ends.reason, run.ongoing.is_stopped) == ("HTTP 500: abcdef", True)
    assert whole(500, b"abcdef").ongoing.is_stopped is False


# --- errors in answers that claim to be none --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [(400, FailureCode.INVALID, 400), ("new", FailureCode.STEP, 500), (403, FailureCode.BROKEN, 403)],
)
def test_an_error_inside_of_an_answer_is_what_its_status_should_have_said(said, code, status):
    data = json.dumps({"error": {"message": "no", "code": said}}).encode()
    event = b"event: error\ndata: " + data + b"\n\n"
    runs = [
        whole(200, data, content_type="application/json"),
        whole(200, data, form=AnswerForm.CHUNKS, content_type="application/json"),
        stream(b": wait\n\n", event, DONE),
        stream(chunk(choice={"delta": {"role": "assistant"}}) + event),
        stream(event, form=AnswerForm.EVENTS),
    ]
    for run in runs:
        assert (run.ends.code, run.ends.tokens, run.ends.reason) == (code, [], f"HTTP {status}: no")
        answer = run.call.answer
        assert (answer is None) == (code is FailureCode.BROKEN)
        assert answer is None or (answer.status, answer.body) == (status, data)
        assert answer is None or answer.headers == [("content-type", "application/json")]


def test_an_error_inside_of_an_answer_that_has_begun_breaks_it_off():
    error = b'data: {"error": {"message": "boom", "code": 400}}\n\n'
    for run in (stream(chunk("a"), error), stream(chunk("a") + error)):
        assert (len(run.ends.tokens), run.ends.code) == (1, FailureCode.BROKEN)
        assert run.ends.reason == "the server reports an error: boom"
    assert stream(chunk("a", "stop"), error).ends.finish is FinishReason.STOP


def test_answers_may_speak_of_errors():
    for body in (b'{"error": null}', b'{"choices": [{"text": "\\"error\\""}], "error": null}', b'{"object": "list"}'):
        assert (whole(200, body).ends.finish, whole(200, body).ends.reason) == (FinishReason.STOP, "")
    assert stream(chunk('"error"'), chunk("", "stop", error=None), DONE).ends.finish is FinishReason.STOP
