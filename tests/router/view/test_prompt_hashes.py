from hypothesis import given
from hypothesis import strategies as st

from router.history.records import PROMPT_BLOCK
from router.view.prompt_hashes import block_hashes, prefix_end, prefix_names

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


def test_prefixes_are_fine_at_the_beginning_and_blocks_behind_it():
    assert [prefix_end(index) for index in range(7)] == [128, 256, 384, 512, 1024, 1536, 2048]
    assert [len(prefix_names([1] * length)) for length in (127, 128, 511, 512, 1023, 1024)] == [0, 1, 3, 4, 4, 5]


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_prefixes_have_one_name_exactly_where_prompts_agree(first_other, num_tokens):
    one = [7] * num_tokens
    other = [7] * min(first_other, num_tokens) + [8] * max(0, num_tokens - first_other)
    pairs = zip(prefix_names(one), prefix_names(other), strict=True)
    assert [mine == theirs for mine, theirs in pairs] == [
        prefix_end(index) <= first_other for index in range(len(prefix_names(one)))
    ]


def test_a_salt_of_any_length_gives_other_prefixes():
    assert len({prefix_names([7] * 128, salt) for salt in (b"", b"a", b"a" * 100)}) == 3
