from hypothesis import given
from hypothesis import strategies as st

from router.history.records import PROMPT_BLOCK
from router.view.prompt_hashes import block_hashes

SALT = b"a" * 16
prompts = st.lists(st.sampled_from([0, 1, 2**32 - 1]), max_size=4).map(
    lambda tokens: [token for token in tokens for _ in range(PROMPT_BLOCK // 2)]
)


@given(prompts, prompts)
def test_names_are_equal_as_far_as_prompts_are(one, other):
    num_blocks = min(-(-len(one) // PROMPT_BLOCK), -(-len(other) // PROMPT_BLOCK))
    names, other_names = block_hashes(one, SALT), block_hashes(other, SALT)
    for count in range(1, num_blocks + 1):
        is_equal = one[: count * PROMPT_BLOCK] == other[: count * PROMPT_BLOCK]
        assert (names[count - 1] == other_names[count - 1]) == is_equal


def test_every_block_has_a_name_even_a_short_one():
    assert [len(block_hashes([1] * length, SALT)) for length in (0, 1, 512, 513)] == [0, 1, 1, 2]


def test_names_fit_any_json_number():
    assert all(0 <= name < 2**48 for name in block_hashes(range(100_000), SALT))


def test_another_salt_gives_other_names():
    prompt = [7] * PROMPT_BLOCK
    assert block_hashes(prompt, SALT) == block_hashes(prompt, SALT)
    assert block_hashes(prompt, SALT) != block_hashes(prompt, b"b" * 16)
