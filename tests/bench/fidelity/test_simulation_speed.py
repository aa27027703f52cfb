import pytest

from bench.fidelity.simulation_speed import Folded, main
from router.history.records import Outcome, Record


def test_percentiles_and_the_digest_are_all_that_is_kept():
    records = [Record(f"r{n}", n, "chat", 10, 5, 1.0, 0.1, Outcome.FINISHED, n / 10, 0.01, n / 5) for n in range(10)]
    folded, again = Folded(), Folded()
    for record in records:
        folded.add(record)
        again.add(record)
    assert folded.digest == again.digest
    assert "TTFT ms: p50 500.00, p90 900.00, p99 900.00" in folded.percentiles()
    again.add(records[0])
    assert folded.digest != again.digest


def test_the_same_seed_has_the_same_digest(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    digests = set()
    for seed in ("1", "1", "2"):
        monkeypatch.setattr("sys.argv", ["speed", "--engines", "2", "--rate", "2", "--duration", "3", "--seed", seed])
        main()
        digests.add(capsys.readouterr().out.splitlines()[-1])
    assert len(digests) == 2
