import pytest

from router.history.records import Outcome, Record, encode_line
from simulation.loads.traces import load_trace
from simulation.reports.steadiness import Judgement, Steadiness
from simulation.reports.summary import Distribution, summarize


def record(number, *, at_s=None, ttft_s=0.5, tpot_s=0.05, outcome=Outcome.FINISHED):
    at_s = float(number if at_s is None else at_s)
    return Record(f"r{number}", at_s, "s", 10, 20, 1.0, 0.1, outcome, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=2.0)


def test_attainment_counts_everything_that_arrived():
    records = [record(0), record(1, ttft_s=1.5), record(2, tpot_s=0.2)]
    records.append(record(3, ttft_s=None, tpot_s=None, outcome=Outcome.REJECTED))
    summary = summarize("tropical", records, None)
    assert (summary.num_finished, summary.num_rejected, summary.num_failed) == (3, 1, 0)
    assert (summary.ttft_attainment, summary.tpot_attainment, summary.attainment) == (0.5, 0.5, 0.25)
    assert summary.rate == 1.0
    assert summary.goodput == 0.25
    assert summary.output_tokens_per_s == pytest.approx(60 / 5)
    assert summarize("tropical", records, 4.0).goodput == 1.0


def together(*arrivals):
    """Requests of 2 s each."""
    return [record(number, at_s=at_s) for number, at_s in enumerate(arrivals)]


def test_a_closed_loop_is_as_fast_as_it_answers():
    """Four clients twice. By the times of arrivals alone they would ask 3.5 times a second."""
    summary = summarize("tropical", together(0, 0, 0, 0, 2, 2, 2, 2), None, is_closed=True)
    assert (summary.rate, summary.goodput, summary.output_tokens_per_s) == (2.0, 2.0, 40.0)


def test_requests_that_come_at_once_come_as_fast_as_they_are_answered():
    assert summarize("tropical", together(0, 0, 0, 0), None).rate == 2.0


def test_what_piles_up_is_no_goodput_and_keeps_no_promise():
    """Eight in a second that take 3 s in all: the promise is kept only because the run ends."""
    growing = summarize(
        "tropical",
        together(*(number / 8 for number in range(8))),
        8.0,
        lambda records: Judgement(Steadiness.GROWING, len(records), growth=5.0),
    )
    assert (growing.rate, growing.attainment, growing.attainment_for(0.9)) == (8.0, 1.0, 0.0)
    assert growing.goodput == pytest.approx(8 / (7 / 8 + 2))
    steady = summarize("tropical", together(0, 1, 2), 1.0, lambda records: Judgement(Steadiness.STEADY, len(records)))
    assert (steady.goodput, steady.attainment_for(0.9)) == (1.0, 1.0)


def test_one_token_has_no_tpot_to_miss():
    assert record(0, tpot_s=None).meets_slo


def test_distribution():
    distribution = Distribution.of([float(value) for value in range(101)] + [None])
    assert (distribution.mean, distribution.percentile(50), distribution.percentile(99)) == (50.0, 50.0, 99.0)
    assert Distribution.of([None]) is None


def test_records_can_be_played_again(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(encode_line(record(2)) + encode_line(record(1)))
    assert [(request.at_s, request.num_input, request.num_output) for request in load_trace(path, None)] == [
        (0.0, 10, 20),
        (1.0, 10, 20),
    ]
