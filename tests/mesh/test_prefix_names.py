from hypothesis import given
from hypothesis import strategies as st

from mesh.prefix_names import prefix_end, prefix_names


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
