import pytest

from bench.fidelity.split_runs import differences, main
from router.history.records import Outcome, Record
from simulation.reports.packed import PackedRecords


def packed(slower: float) -> PackedRecords:
    """Answers, of which one in five is slower."""
    records = PackedRecords()
    for number in range(1000):
        ttft_s = (1 + number) / 100 * (slower if number >= 840 else 1.0)
        records.append(Record("", number, "chat", 10, 5, 1.0, 0.1, Outcome.FINISHED, ttft_s, 0.01, ttft_s + 0.04))
    return records


def test_the_percentile_that_is_furthest_is_told():
    [ttft, tpot, _] = differences(packed(1.0), packed(1.5))
    assert ttft == ("TTFT", 85, pytest.approx(0.5))
    assert tpot == ("TPOT", 1, 0.0)


def test_a_run_is_played_whole_and_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    asked = ["--engines", "2", "--rate", "2", "--duration", "30", "--lead", "2,10", "--processes", "1", "--again"]
    monkeypatch.setattr("sys.argv", ["split", *asked])
    main()
    printed = capsys.readouterr().out
    assert "whole again, after one request: TTFT P" in printed
    assert "2 stretches, lead 2 s: " in printed
    assert "2 stretches, lead 10 s: " in printed
