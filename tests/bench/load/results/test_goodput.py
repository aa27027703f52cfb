"""Promises: how they are written, and which requests keep them."""

import pytest

from bench.load.results.goodput import parse_promises
from bench.load.results.outcome import Failure, Promise
from tests.bench.load.small import failed, outcome


def test_promises_are_read_in_milliseconds():
    promises = parse_promises(["ttft:500", "tpot:50.5", "chat/ttft:100", "org/code/e2el:9"])
    assert promises.common == Promise(ttft_s=0.5, tpot_s=0.0505)
    assert promises.services == {"chat": Promise(ttft_s=0.1), "org/code": Promise(e2el_s=0.009)}
    assert parse_promises(promises.words().split()) == promises


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["ttft"], "'ttft'"),
        (["ttft500"], "'ttft500'"),
        (["latency:5"], "ttft, tpot, itl, e2el"),
        (["ttft:soon"], "'soon'"),
        (["ttft:0"], "greater than 0"),
        (["ttft:-3"], "greater than 0"),
        (["ttft:inf"], "greater than 0"),
        (["ttft:nan"], "greater than 0"),
        (["ttft:5", "ttft:6"], "twice"),
    ],
)
def test_bad_promises_are_named(words: list[str], named: str):
    with pytest.raises(ValueError, match=named):
        parse_promises(words)


@pytest.mark.parametrize(
    ("words", "is_kept"),
    [
        ("ttft:501", True),
        ("ttft:499", False),
        ("tpot:101", True),
        ("tpot:99", False),
        ("itl:101", True),
        ("itl:99", False),
        ("e2el:901", True),
        ("e2el:899", False),
        ("ttft:501 tpot:99", False),
    ],
)
def test_each_metric_counts(words: str, is_kept: bool):
    assert parse_promises(words.split()).is_kept(outcome()) == is_kept


def test_what_a_service_and_a_request_are_promised_goes_before_what_all_are():
    promises = parse_promises(["ttft:499", "patient/ttft:600"])
    assert not promises.is_kept(outcome())
    assert promises.is_kept(outcome(model="patient"))
    assert promises.is_kept(outcome(promise=Promise(ttft_s=0.6)))
    assert not promises.is_kept(outcome(model="patient", promise=Promise(tpot_s=0.01)))


def test_lost_requests_keep_nothing_and_short_answers_have_no_tpot():
    assert not parse_promises([]).is_kept(failed(Failure.REFUSED))
    assert parse_promises(["tpot:1", "itl:1"]).is_kept(outcome(output_tokens=1, itls_s=[]))
