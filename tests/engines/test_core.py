"""The engine core: whatever happens in whatever order, right tokens or an answer, and no block lost."""

import pytest

from engines.engine_request import MOST_RESENT
from mesh.topology.schema import Scheduling
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Epoch,
    Recall,
    RefusalCode,
    Refused,
    Sampling,
    TokenLogprobs,
)
from tests.engines.conftest import MakeSequence, MakeSpec
from tests.engines.core_pairs import pool, refusals, two_engines
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import GATEWAY, SERVICE, continuation


def test_one_engine_runs_a_request_from_prompt_to_end(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("only")
    spec = make_spec("r", 21, max_tokens=9)
    mesh.submit("only", spec)
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 9)
    assert mesh.finished == {"r": "length"}
    assert mesh.answers == [Accepted("r", Epoch(1), 1)]


def test_a_new_attempt_at_the_same_engine_replaces_the_old_one(make_spec: MakeSpec):
    mesh = two_engines()
    spec = make_spec("r", 20, max_tokens=5)
    mesh.submit("decode", spec)
    mesh.step()
    mesh.submit("decode", spec, attempt=2)
    mesh.deliver(GATEWAY, "decode", Cancel("r", Epoch(1)))  # late, of the first attempt
    mesh.settle()
    assert mesh.streams["r"] == continuation(spec.prompt, 5)


def test_a_continuation_gives_the_tokens_that_were_missing(make_spec: MakeSpec):
    mesh = two_engines()
    tokens = continuation(list(range(1, 9)), 10)
    mesh.streams["r"] = tokens[:4]
    mesh.submit("prefill", make_spec("r", 8, max_tokens=10, generated=tokens[:4]), decode="decode")
    mesh.settle()
    assert mesh.streams["r"] == tokens


def test_a_prefill_that_the_running_decodes_cannot_afford_is_refused(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("busy", num_blocks=64)
    mesh.submit("busy", make_spec("decoding", 4, max_tokens=50, slo_tpot_s=0.03))
    for _ in range(8):
        mesh.step()
    mesh.submit("busy", make_spec("long", 200), multiplex=True)
    mesh.submit("busy", make_spec("short", 2, first=500), multiplex=True)
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.NO_SLACK]
    assert set(mesh.finished) == {"decoding", "short"}


def test_an_engine_that_batches_continuously_takes_it_all_the_same(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("busy", num_blocks=64, scheduling=Scheduling.CONTINUOUS)
    mesh.submit("busy", make_spec("decoding", 4, max_tokens=50, slo_tpot_s=0.03))
    for _ in range(8):
        mesh.step()
    mesh.submit("busy", make_spec("long", 200), multiplex=True)
    mesh.settle()
    assert refusals(mesh) == []
    assert set(mesh.finished) == {"decoding", "long"}


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"service": "other"}, RefusalCode.UNKNOWN_SERVICE),
        ({"num_prompt": 128}, RefusalCode.NO_MEMORY),
    ],
)
def test_what_cannot_run_here_is_refused_with_the_reason(
    make_spec: MakeSpec, overrides: dict[str, object], code: RefusalCode
):
    mesh = two_engines()
    mesh.submit("decode", make_spec("r", **overrides))
    mesh.settle()
    assert refusals(mesh) == [code]


def test_a_full_queue_and_a_draining_engine_refuse(make_spec: MakeSpec):
    mesh = VirtualMesh()
    engine = mesh.add("e", max_waiting=1)
    for index in range(2):
        mesh.submit("e", make_spec(f"r{index}"))
    mesh.perform("e", engine.core.drain(0.0))
    mesh.submit("e", make_spec("late"))
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.FULL, RefusalCode.DRAINING]
    assert mesh.finished == {"r0": "length"}


def test_a_submit_that_comes_again_after_the_end_brings_nothing_back(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r"), decode="decode")
    mesh.settle()
    num_answers = len(mesh.answers)
    for engine in ("prefill", "decode"):
        mesh.submit(engine, make_spec("r"))
    assert mesh.engines["prefill"].core.is_idle
    assert mesh.engines["decode"].core.is_idle
    assert len(mesh.answers) == num_answers
    mesh.submit("prefill", make_spec("r"), attempt=2)
    assert not mesh.engines["prefill"].core.is_idle


def test_an_answer_that_outgrows_the_pool_ends_with_length(make_spec: MakeSpec):
    mesh = VirtualMesh()
    mesh.add("tiny", num_blocks=3)
    mesh.submit("tiny", make_spec("r", 6, max_tokens=100))
    mesh.settle()
    assert mesh.finished == {"r": "length"}
    assert mesh.streams["r"] == continuation(list(range(1, 7)), len(mesh.streams["r"]))


def test_the_last_token_ends_a_request_on_the_prefill_engine(make_spec: MakeSpec):
    mesh = two_engines()
    mesh.submit("prefill", make_spec("r", 9, max_tokens=1), decode="decode")
    mesh.settle()
    assert mesh.finished == {"r": "length"}
    assert pool(mesh, "decode").num_held == 0


def test_stop_tokens_end_a_request_unless_told_otherwise(make_spec: MakeSpec):
    prompt = list(range(1, 9))
    third = continuation(prompt, 3)[2]
    for sampling, expected in (
        (Sampling(max_tokens=9, seed=1, stop_token_ids=(third,)), (3, "stop")),
        (Sampling(max_tokens=9, seed=1, stop_token_ids=(third,), min_tokens=4), (9, "length")),
    ):
        mesh = VirtualMesh()
        mesh.add("e")
        mesh.submit("e", make_spec("r", 8, sampling=sampling))
        mesh.settle()
        assert (len(mesh.streams["r"]), mesh.finished["r"]) == expected


def test_what_has_not_begun_can_be_called_back_and_what_has_goes_on(make_spec: MakeSpec):
    """Also what waits for blocks of a decode engine; a later attempt is another request."""
    mesh = two_engines()
    for name in ("running", "waiting", "again"):
        mesh.submit("prefill", make_spec(name, 5, max_tokens=4), decode="decode", attempt=2 if name == "again" else 1)
    prefill = mesh.engines["prefill"].core
    begun = next(iter(prefill._services[SERVICE].queue.running), None)
    assert begun is None or begun.id == "running"
    for name in ("waiting", "again", "unknown"):
        mesh.deliver(GATEWAY, "prefill", Recall(name, Epoch(1)))
    mesh.settle()
    assert [answer.request for answer in mesh.answers if isinstance(answer, Refused)] == ["waiting"]
    assert refusals(mesh) == [RefusalCode.RECALLED]
    assert set(mesh.finished) == {"running", "again"}
    for name in ("running", "again"):
        mesh.deliver(GATEWAY, "decode", Recall(name, Epoch(9)))
    mesh.settle()
    assert refusals(mesh) == [RefusalCode.RECALLED]


def test_log_probabilities_that_were_delivered_are_not_kept_for_ever(make_sequence: MakeSequence):
    request = make_sequence(sampling=Sampling(max_tokens=1000, seed=1, logprobs=1))
    for token in range(400):
        request.append(token, TokenLogprobs(token, -0.5, [(token, -0.5)]), 0.0)
        delta = request.take_delta(None)
        assert [own.token for own in delta.logprobs or ()] == delta.tokens == [token]
        assert len(request.logprobs) <= 2 * MOST_RESENT
    again = request.resend_from(400 - MOST_RESENT)
    assert again is not None
    assert [own.token for own in again.logprobs or ()] == again.tokens == list(range(400 - MOST_RESENT, 400))
    assert request.resend_from(0) is None
    request.transfer = "t"
    for token in range(300):
        request.append(token, TokenLogprobs(token, -0.5, []), 0.0)
        request.take_delta(None)
    assert request.first_known_offset <= 400, "its new owner repeats what was sampled meanwhile"
