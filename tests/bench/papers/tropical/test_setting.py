"""Tropical's figure, in small."""

import gzip
import json
from statistics import fmean

import pytest

from bench.papers.seallm.lengths import LONGBENCH
from bench.papers.tropical import __main__ as command
from bench.papers.tropical.setting import (
    CONTENDERS,
    MODELS,
    PERCENTS,
    PROMISE,
    UNSPLIT,
    Case,
    Latencies,
    Rated,
    Workload,
    make_topology,
    measure,
    search,
)
from mesh.wire.control import Role
from simulation.loads.rows import TraceError
from simulation.loads.sources import AS_IT_SAYS

MODEL = "InternLM2.5-20B TP2"
CASE = Case(MODEL, Workload(context=4096), "colocated", 15, 0)


@pytest.fixture(scope="module")
def mooncake(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "conversation_trace.jsonl.gz"
    rows = [
        {"timestamp": 1000 * n, "input_length": 1000 + n, "output_length": 20, "hash_ids": [n, n + 1000]}
        for n in range(60)
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return path


def test_a_search_finds_a_rate_that_is_served():
    found = search(CASE)
    assert found.rate > 0
    assert {trial.attainment >= PROMISE for trial in found.trials} == {False, True}


def test_nothing_is_kept_where_the_backlog_grows(monkeypatch):
    case = Case(MODEL, Workload(context=4096), "colocated", 200, 0)
    assert case.attainment(0.2) > PROMISE
    monkeypatch.setattr("bench.papers.tropical.setting.TTFT_FACTOR", 1e6)
    monkeypatch.setattr("bench.papers.tropical.setting.TPOT_SLO_S", 1e6)
    assert case.run(20.0).attainment == 1.0
    assert case.attainment(20.0) < PROMISE


def test_a_part_of_a_trace_keeps_its_own_arrivals(mooncake):
    load = Workload(mooncake, 900).load(1.0, 10, seed=3)
    parts = [(one.at_s, one.num_input + one.num_output) for one in load.trace]
    assert [at_s for at_s, _ in parts] == pytest.approx(range(10), abs=1.0)
    assert {total for _, total in parts} == {900}
    assert load.play(AS_IT_SAYS, 0, None)
    with pytest.raises(TraceError, match="has 60 requests; more than 60 are needed"):
        Workload(mooncake).load(1.0, 60, seed=0)


def test_lengths_are_like_longbenchs():
    drawn = Workload(context=32768).load(1.0, 4000, seed=1).lengths
    assert fmean(one.num_output for one in drawn) == pytest.approx(LONGBENCH.answer, rel=0.1)
    assert fmean(one.num_input for one in drawn) == pytest.approx(LONGBENCH.prompt, rel=0.15)
    assert max(one.num_input + one.num_output for one in drawn) <= 32768


@pytest.mark.parametrize("num_engines", [2, 4])
def test_half_of_the_engines_prefill_where_engines_are_split(num_engines):
    for contender in CONTENDERS.values():
        engines = make_topology(MODELS[MODEL].preset, contender, num_engines).engines
        roles = [engine.role for engine in engines]
        assert roles.count(Role.PREFILL) == (num_engines // 2 if contender.splits else 0)
        assert contender.policy not in UNSPLIT or not contender.splits


def test_latencies_have_their_quantiles():
    found = measure(Rated(CASE, 0.1))
    assert len(found.e2e_s) == len(found.stretch) == len(PERCENTS)
    assert list(found.e2e_s) == sorted(found.e2e_s)
    assert found.ttft_p90_s <= found.e2e_s[-1]
    assert found.stretch[0] == pytest.approx(1.0, rel=0.05)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_ratios_are_of_pairs_and_beside_the_right_rivals():
    rates = {("20B", "Mooncake"): {"colocated": [1.0, 2.0], "chunked 512": [2.0, 2.0], "tropical": [2.0, 4.0]}}
    rows = {row[2]: row[3:] for row in command.capacity_rows(rates)}
    assert rows["chunked 512 (best baseline)"][1] == ""
    assert rows["tropical"][0] == "3.000"
    assert rows["tropical"][1].startswith("1.41 (")
    assert rows["tropical"][2].startswith("2.00")


def test_latencies_say_how_many_times_shorter_tropicals_are():
    def of(ttft_s, tpot_s):
        return Latencies(0.9, ttft_s, tpot_s, (1.0,) * len(PERCENTS), (0.5,) * len(PERCENTS))

    found = {CASE: of(4.0, 0.2), Case(MODEL, CASE.workload, "tropical", 15, 0): of(2.0, 0.05)}
    rows = {row[2]: row for row in command.latency_rows(found)}
    assert rows["colocated"][4:8] == ("4.00", "2.00", "200", "4.00")
    assert rows["tropical"][5] == ""


def test_the_command_does_nothing_twice(mooncake, tmp_path, capsys, monkeypatch):
    asked = ["--mooncake", str(mooncake), "--models", MODEL, "--requests", "10", "--seeds", "1", "--jobs", "1"]
    asked += ["--workloads", "Mooncake", "--only", "colocated", "tropical", "--out", str(tmp_path)]
    command.main(asked)
    assert "x the paper's best" in capsys.readouterr().out
    monkeypatch.setattr("bench.papers.tropical.setting.Experiment", None)
    command.main(asked)
    assert "2 of them done before" in capsys.readouterr().out


def test_one_engine_is_too_few(capsys):
    with pytest.raises(SystemExit):
        command.main(["--mooncake", "x", "--engines", "1"])
    assert "use 2 or more" in capsys.readouterr().err
