"""Tests of the identities of blocks, and of how the tokens behind them are kept."""

from engines.memory.block_digests import ROOT, chain, packed


def test_tokens_are_kept_in_a_byte_each_where_that_is_enough():
    assert packed([0, 255]).itemsize == 1
    assert packed([0, 256]).itemsize == 4


def test_packed_tokens_have_the_same_identity():
    for tokens in ([1, 2, 3, 255], [1, 2, 3, 2**31]):
        assert list(packed(tokens)) == tokens
        assert chain(ROOT, packed(tokens)) == chain(ROOT, tokens)
