"""Llumnix's setting: what it measures besides records, what its engines cost, and small runs of it."""

import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest

from bench.papers.llumnix import __main__ as command
from bench.papers.llumnix.setting import INFAAS, KV_TOKENS, LLUMNIX, ROUND_ROBIN, Case, Result, make_profile, run_case
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.named_profiles import load_profile


def test_an_a10_costs_what_its_source_says():
    a100, a10 = load_profile("a100-llama2-7b-tp1"), load_profile("a10-llama2-7b-tp1")
    for num_tokens in (256, 2048, 8192):
        assert prefill_s(a10.prefill, num_tokens) == pytest.approx(
            312 / 125 * prefill_s(a100.prefill, num_tokens), rel=0.005
        )
    for num_requests, context in ((1, 100), (16, 8000), (64, 13_000)):
        slower = decode_step_s(a10.decode, num_requests, context) / decode_step_s(a100.decode, num_requests, context)
        assert slower == pytest.approx(2039 / 600, rel=0.005)
    assert prefill_s(a10.prefill, 1) >= decode_step_s(a10.decode, 1, 1) * 0.99
    presets = tomllib.loads(files("engines.costs").joinpath("presets.toml").read_text(encoding="utf-8"))
    assert presets["profiles"]["a10-llama2-7b-tp1"]["source"] == "datasheet"


def test_engines_hold_as_many_tokens_as_the_papers():
    profile = make_profile()
    assert profile.kv_memory_bytes // profile.kv_bytes_per_token == KV_TOKENS


def test_a_run_tells_the_latencies_of_the_same_requests_for_every_contender():
    case = Case("S-S", 14.0, INFAAS, 0, 100, num_engines=4)
    assert case.requests() == case.requests()
    result = run_case(case)
    assert (result.num_requests, result.num_failed) == (100, 0)
    assert 0 < result.ttft_s[0] <= result.ttft_s[1] <= result.e2e_s[1]
    assert 0.03 < result.tpot_s[0] <= result.tpot_s[1]


def test_preemptions_are_seen():
    busy = run_case(Case("M-M", 12.0, ROUND_ROBIN, 0, 250, num_engines=2, coasts=True))
    assert busy.preempted > 0
    assert busy.moves == 0


def test_without_a_cache_and_with_time_between_steps_everything_takes_longer():
    case = Case("M-M", 12.0, ROUND_ROBIN, 0, 200, num_engines=2, coasts=True)
    slow, fast = run_case(case), run_case(replace(case, step_s=0.0, caches=True))
    assert slow.tpot_s[0] > fast.tpot_s[0] + 0.9 * case.step_s
    assert slow.ttft_s[1] > fast.ttft_s[1]


def test_rows_are_of_pairs_and_end_with_the_best_rate_at_which_nothing_grows():
    def result(ttft_s, grows=False):
        return Result(10, 0, (ttft_s, 2 * ttft_s), (0.03, 0.04), (9.0, 20.0), 0.05, 0.1, grows)

    found = {
        Case("S-L", rate, contender, 0, 10): result(ttft_s)
        for rate, contender, ttft_s in (
            (4.0, INFAAS, 2.0),
            (4.0, LLUMNIX, 1.0),
            (5.0, INFAAS, 9.0),
            (5.0, LLUMNIX, 3.0),
            (6.0, LLUMNIX, 3.0),
        )
    }
    found[Case("S-L", 6.0, INFAAS, 0, 10)] = result(90.0, grows=True)
    rows = list(command.better_rows(found))
    assert [row[1:5] for row in rows] == [
        ("4", "infaas", "2.00", "2.00"),
        ("5", "infaas", "3.00", "3.00"),
        ("6", "infaas", "30.00", "30.00"),
        ("best", "infaas", "3.00 at 5", "3.00 at 5"),
    ]
    assert [row[-2:] for row in rows[1:3]] == [("5.0, 5.0", ""), ("5.0, 5.0", "backlog grows")]


def test_the_command_does_nothing_twice(tmp_path, capsys, monkeypatch):
    asked = ["--only", "S-S", "--rates", "10", "--requests", "60", "--engines", "2", "--seeds", "1", "--jobs", "1"]
    asked += ["--contenders", "infaas", "llumnix", "--coast", "--out", str(tmp_path)]
    command.main(asked)
    assert "TTFT P99" in capsys.readouterr().out
    monkeypatch.setattr("bench.papers.llumnix.setting.make_simulation", None)
    command.main(asked)
    assert "2 runs, 2 of them done before" in capsys.readouterr().out
