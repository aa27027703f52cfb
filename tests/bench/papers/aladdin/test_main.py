import pytest

from bench.papers.aladdin.__main__ import MOST_ENGINES, fewer, fewest
from bench.papers.aladdin.setting import CONTENDERS, CONTEXT, Setting, Trial, serve, trial_of
from router.history.records import Outcome, Record

SETTING = Setting("a100", "llama2-13b", 2.0, 5.0, 5.0, 0)
BY_NAME = {one.name: one for one in CONTENDERS}


@pytest.mark.parametrize("first", [1, 3, 8, MOST_ENGINES])
@pytest.mark.parametrize("least", [1, 2, 7, 30, MOST_ENGINES])
def test_the_fewest_are_found_from_wherever_the_search_begins(first, least):
    tried = []
    assert fewest(lambda count: tried.append(count) or count >= least, first) == least
    assert len(tried) == len(set(tried)) < 16


def test_what_no_number_of_engines_keeps_is_said_so():
    assert fewest(lambda count: False, 3) is None


def test_another_theta_is_asked_for_fewer_engines_only():
    tried = []
    assert fewer(lambda count: tried.append(count) or count >= 5, 7) == 5
    assert tried == [6, 5, 4]


def test_engines_are_those_of_table_3_and_the_default_ones_larger():
    sizes = {contender.name: SETTING.size(contender) for contender in CONTENDERS}
    assert sizes["default"] == 4
    assert sizes["packing"] == sizes["JSQ"] == 1
    assert all(one.num_input + one.num_output <= CONTEXT for one in SETTING.trace())


def test_the_papers_baselines_compute_prompts_first():
    for name in ("default", "JSQ", "power of two"):
        assert BY_NAME[name].policy.parameters == {"prefill": "first"}


def test_more_engines_keep_more_promises():
    [policy] = BY_NAME["packing"].policies([0.9])
    busy = Setting("a100", "llama2-13b", 5.0, 5.0, 5.0, 0)
    few, many = (trial_of(serve(busy, BY_NAME["packing"], policy, count)) for count in (1, 4))
    assert few.attainment < many.attainment


def record(outcome=Outcome.FINISHED, ttft_s=0.1, tpot_s=0.01):
    return Record("r", 0.0, "chat", 1, 1, 0.5, 0.03, outcome, ttft_s, tpot_s)


def test_a_missed_promise_counts_once_by_what_came_first():
    refused, late, slow = record(Outcome.REJECTED, None, None), record(ttft_s=0.6, tpot_s=0.04), record(tpot_s=0.04)
    trial = trial_of([record(), refused, late, slow, slow])
    assert trial == Trial(5, 1, 1, 2)
    assert (trial.keeps(20), trial.keeps(21)) == (True, False)
