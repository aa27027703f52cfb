import pytest

from bench.papers.aladdin.__main__ import MOST_ENGINES, fewest
from bench.papers.aladdin.setting import CONTENDERS, CONTEXT, Setting, attainment

SETTING = Setting("a100", "llama2-13b", 2.0, 5.0, 5.0, 0)


@pytest.mark.parametrize("first", [1, 3, 8, MOST_ENGINES])
@pytest.mark.parametrize("least", [1, 2, 7, 30, MOST_ENGINES])
def test_the_fewest_are_found_from_wherever_the_search_begins(first, least):
    tried = []
    assert fewest(lambda count: tried.append(count) or count >= least, first) == least
    assert len(tried) == len(set(tried)) < 16


def test_what_no_number_of_engines_keeps_is_said_so():
    assert fewest(lambda count: False, 3) is None


def test_engines_are_those_of_table_3_and_the_default_ones_larger():
    sizes = {name: SETTING.size(contender) for name, contender in CONTENDERS.items()}
    assert sizes["default"] == 4
    assert sizes["packing"] == sizes["JSQ"] == 1
    assert all(one.num_input + one.num_output <= CONTEXT for one in SETTING.trace())


def test_the_papers_baselines_compute_prompts_first():
    for name in ("default", "JSQ", "power of two"):
        assert CONTENDERS[name].policy.parameters == {"prefill": "first"}


def test_more_engines_keep_more_promises():
    busy = Setting("a100", "llama2-13b", 5.0, 5.0, 5.0, 0)
    few, many = (attainment(busy, CONTENDERS["packing"], 0.9, count) for count in (1, 4))
    assert few < many
