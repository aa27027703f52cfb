import pytest

from router.history.records import Outcome, Record, write_records
from simulation.loads.traces import load_trace
from simulation.reports.summary import Distribution, summarize


def record(number, *, ttft_s=0.5, tpot_s=0.05, outcome=Outcome.FINISHED):
    return Record(f"r{number}", float(number), "s", 10, 20, 1.0, 0.1, outcome, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=2.0)


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


def test_one_token_has_no_tpot_to_miss():
    assert record(0, tpot_s=None).meets_slo


def test_distribution():
    distribution = Distribution.of([float(value) for value in range(101)] + [None])
    assert (distribution.mean, distribution.percentile(50), distribution.percentile(99)) == (50.0, 50.0, 99.0)
    assert Distribution.of([None]) is None


def test_records_can_be_played_again(tmp_path):
    path = tmp_path / "records.jsonl"
    write_records(path, [record(2), record(1)])
    assert [(request.at_s, request.num_input, request.num_output) for request in load_trace(path, None)] == [
        (0.0, 10, 20),
        (1.0, 10, 20),
    ]
