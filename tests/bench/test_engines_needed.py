import pytest

from bench.engines_needed import BEST, CONTENDERS, CONTEXT, MOST_ENGINES, SLOS, Setting, attainment, fewest, topology
from mesh.messages import Role

SETTING = Setting("a100", "llama2-13b", 2.0, False, 99.0, 5.0, 5.0, 0)


@pytest.mark.parametrize("first", [1, 3, 8, 100])
@pytest.mark.parametrize("least", [1, 2, 7, 30, MOST_ENGINES])
def test_the_fewest_are_found_from_wherever_the_search_begins(first, least):
    tried = []
    assert fewest(lambda count: tried.append(count) or count >= least, first) == least
    assert len(tried) == len(set(tried)) < 16


def test_what_no_number_of_engines_keeps_is_said_so():
    assert fewest(lambda count: False, 3) is None


def test_engines_are_those_of_table_3_and_the_default_ones_larger():
    assert set(SLOS) == set(BEST)
    sizes = {contender.name: SETTING.size(contender) for contender in CONTENDERS}
    assert sizes["default"] == 4
    assert sizes["packing"] == sizes["JSQ"] == 1
    assert all(one.num_input + one.num_output <= CONTEXT for one in SETTING.trace())


def test_prefill_engines_come_on_top_where_phases_are_split():
    split = Setting("a100", "llama2-13b", 2.0, True, 99.0, 5.0, 5.0, 0)
    roles = [spec.role for spec in topology(split, CONTENDERS[1], 3).engines]
    assert roles.count(Role.DECODE) == 3
    assert roles.count(Role.PREFILL) >= 2


def test_more_engines_keep_more_promises():
    packing = next(one for one in CONTENDERS if one.name == "packing")
    few, many = (attainment(SETTING, packing, count) for count in (1, 4))
    assert few < many
