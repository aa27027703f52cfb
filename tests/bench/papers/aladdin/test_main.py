"""Aladdin's bench: its setting is the paper's, searches find the fewest engines, and savings are those of pairs."""

from dataclasses import replace

import pytest

from bench.papers.aladdin import __main__ as command
from bench.papers.aladdin import testbed
from bench.papers.aladdin.links import reproduced
from bench.papers.aladdin.search import MOST_ENGINES, Found, Search, fewest, saved, savings
from bench.papers.aladdin.setting import CONTENDERS, CONTEXT, PCIE, Case, Link, Result, Setting, run_case

SETTING = Setting("a100", "llama2-13b", 2.0, 5.0, 5.0, 0)


# --- the setting ------------------------------------------------------------------------------------------------------


def test_engines_are_those_of_table_3_and_the_default_ones_larger():
    sizes = {name: SETTING.size(contender) for name, contender in CONTENDERS.items()}
    assert sizes["default"] == 4
    assert sizes["packing"] == sizes["JSQ"] == 1
    assert all(one.num_input + one.num_output <= CONTEXT for one in SETTING.trace())


def test_the_papers_baselines_compute_prompts_first():
    for name in ("default", "JSQ", "power of two"):
        assert CONTENDERS[name].policy.parameters == {"prefill": "first"}


def test_promises_by_rule_follow_from_the_engines():
    assert SETTING.slo.ttft_s == 0.6
    own = replace(SETTING, by_rule=True).slo
    assert own.ttft_s == pytest.approx(0.44, rel=0.01)
    assert own.tpot_s == pytest.approx(1.3 * 0.0187, rel=0.02)


def test_decodes_alone_are_promised_nothing_of_prompts():
    decodes = replace(SETTING, only_decodes=True)
    assert decodes.slo.ttft_s > 1e5
    assert decodes.slo.tpot_s == SETTING.slo.tpot_s
    assert run_case(Case(decodes, "JSQ", None, 4)).attainment >= run_case(Case(SETTING, "JSQ", None, 4)).attainment


def test_only_25_gb_a_second_and_slow_hops_give_both_tables():
    found = reproduced(Link(25e9, 37e-6))
    assert found.has_prefill
    assert found.has_tpot
    assert found.has_sizes
    assert not reproduced(PCIE).has_prefill
    assert not reproduced(Link(25e9, 20e-6)).has_sizes


def test_more_engines_keep_more_promises():
    busy = replace(SETTING, rate=5.0)
    few, many = (run_case(Case(busy, "packing", 0.9, count)).attainment for count in (1, 4))
    assert few < many


def test_nothing_is_kept_where_the_backlog_grows():
    kept = Result(100, 1.0, 0.02, grows=False)
    assert kept.keeps(100.0)
    assert not replace(kept, grows=True).keeps(99.0)
    assert not replace(kept, attainment=0.98).keeps(99.0)
    assert run_case(Case(replace(SETTING, rate=20.0, duration_s=10.0), "JSQ", None, 1)).grows


# --- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [1, 3, 8, MOST_ENGINES])
@pytest.mark.parametrize("least", [1, 2, 7, 30, MOST_ENGINES])
def test_the_fewest_are_found_from_wherever_the_search_begins(first, least):
    tried = []
    assert fewest(lambda count: tried.append(count) or count >= least, first) == least
    assert len(tried) == len(set(tried)) < 16


def test_what_no_number_of_engines_keeps_is_said_so():
    assert fewest(lambda count: False, 3) is None


def test_savings_are_of_pairs_with_the_same_seed():
    def of(name, seed, count):
        return Search(replace(SETTING, seed=seed), name, (99.0,), (0.9,)), [Found(99.0, count, None)]

    counts = {"JSQ": (10, 8), "packing": (8, 6), "default": (4, 4)}
    found = dict(of(name, seed, count) for name, both in counts.items() for seed, count in enumerate(both))
    [jsq, packing, default] = savings(found)
    assert jsq[:5] == ("llama2-13b", "JSQ", "2", "99", "9.0")
    assert jsq[6].startswith("23 (")
    assert packing[6:] == ("", "")
    assert default[4] == "16.0"
    assert saved([8.0], [10.0]) == "20"


def test_gains_are_those_of_the_load_where_packing_gains_most():
    setting = testbed.loaded(replace(SETTING, model="llama2-13b"), 0.5)
    assert setting.rate == pytest.approx(3.6, rel=0.02)
    busier = replace(setting, rate=5.0)
    found = {
        Case(setting, "JSQ", None, 4): Result(9, 0.98, 0.020, False),
        Case(setting, "packing", 0.9, 4): Result(9, 0.98, 0.015, False),
        Case(busier, "JSQ", None, 4): Result(9, 0.60, 0.020, True),
        Case(busier, "packing", 0.9, 4): Result(9, 0.90, 0.020, False),
    }
    assert list(testbed.gains(found)) == [("llama2-13b", "packing against JSQ", "4.0", "50 (51)", "25 (40)")]


def test_the_command_searches_and_does_nothing_twice(tmp_path, capsys, monkeypatch):
    asked = ["--ask", "engines", "testbed", "--models", "llama2-13b", "--rates", "1", "--seeds", "1", "--jobs", "1"]
    asked += ["--warm-up", "1", "--duration", "3", "--contenders", "JSQ", "packing", "--percent", "99"]
    monkeypatch.setattr(testbed, "LOADS", (0.5,))
    command.main([*asked, "--out", str(tmp_path)])
    assert "violations: times fewer" in capsys.readouterr().out
    monkeypatch.setattr("bench.papers.aladdin.setting.make_simulation", None)
    command.main([*asked, "--out", str(tmp_path)])
    assert "2 of them done before" in capsys.readouterr().out
    assert {path.name for path in tmp_path.glob("*.json")} == {"engines.json", "testbed.json"}
