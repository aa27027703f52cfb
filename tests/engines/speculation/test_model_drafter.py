"""What a draft model keeps of a request: blocks in its own pool, and how far it has computed."""

import pytest

from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.batch import Drafting
from engines.speculation.model_drafter import MOST_AT_ONCE, ModelDrafter

SALT = b"salt"


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(PagePool(300), 4)


def drafting(drafter: ModelDrafter, pool: BlockPool, number: int = 3) -> Drafting:
    found = drafter.drafting("small", pool, number)
    assert found is not None
    return found


def test_it_computes_what_it_lacks_and_then_drafts(pool: BlockPool):
    drafter = ModelDrafter([*range(10)], SALT)
    first = drafting(drafter, pool)
    assert (first.start, first.end, first.number) == (0, 10, 3)
    assert len(first.blocks) == 3, "ten tokens, and the KV of all drafts but the last"


def test_far_behind_it_only_catches_up(pool: BlockPool):
    drafter = ModelDrafter([*range(MOST_AT_ONCE + 1)], SALT)
    first = drafting(drafter, pool)
    assert (first.end, first.number) == (MOST_AT_ONCE, 0)
    drafter.checked(first, 0)
    second = drafting(drafter, pool)
    assert (second.start, second.end, second.number) == (MOST_AT_ONCE, MOST_AT_ONCE + 1, 3)


@pytest.mark.parametrize(("num_accepted", "computed"), [(0, 10), (1, 11), (2, 12), (3, 12)])
def test_the_kv_of_wrong_drafts_and_of_the_last_one_is_void(pool: BlockPool, num_accepted: int, computed: int):
    drafter = ModelDrafter([*range(10)], SALT)
    drafter.checked(drafting(drafter, pool), num_accepted)
    assert drafter.num_computed == computed
    assert not drafter.is_new


def test_to_catch_up_is_not_to_have_drafted(pool: BlockPool):
    drafter = ModelDrafter([*range(10)], SALT)
    drafter.checked(drafting(drafter, pool, 0), 0)
    assert drafter.is_new


def test_without_room_it_drafts_nothing_and_holds_nothing_more(pool: BlockPool):
    drafter = ModelDrafter([*range(10)], SALT)
    pool.allocate(298)
    assert drafter.drafting("small", pool, 3) is None
    assert drafter.blocks == []


def test_what_it_gave_up_is_found_by_the_next_one_with_its_salt(pool: BlockPool):
    drafter = ModelDrafter([*range(10)], SALT)
    drafter.checked(drafting(drafter, pool), 0)
    drafter.lose()
    assert (drafter.num_lost, drafter.num_computed, drafter.is_new, pool.num_held) == (1, 0, True, 0)
    assert drafting(ModelDrafter([*range(10)], SALT), pool).start == 8, "two full blocks"
    assert drafting(ModelDrafter([*range(10)], b"other"), pool).start == 0
    assert drafting(ModelDrafter([*range(10)], None), pool).start == 0


def test_nothing_that_was_not_computed_is_given_to_others(pool: BlockPool):
    drafter = ModelDrafter([*range(10)], SALT)
    drafting(drafter, pool)
    drafter.release()
    assert drafting(ModelDrafter([*range(10)], SALT), pool).start == 0


def test_another_pool_begins_anew(pool: BlockPool):
    drafter, other = ModelDrafter([*range(10)], SALT), BlockPool(PagePool(300), 4)
    drafter.checked(drafting(drafter, pool), 0)
    assert drafting(drafter, other).start == 0
    assert pool.num_held == 0
