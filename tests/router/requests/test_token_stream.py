from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.wire.requests import Delta, Epoch, FinishReason, TokenLogprobs
from router.generation import TokenBatch
from router.requests.token_stream import MAX_HELD, Broken, Fence, TokenStream
from tests.router.cluster import make_delta

STOP = FinishReason.STOP


def tokens_of(taken):
    assert isinstance(taken, list), taken
    return [batch.tokens for batch in taken]


def take(stream, offset, *tokens, now=0.0, **fields):
    return stream.take(make_delta(offset, *tokens, **fields), now)


def test_tokens_in_order_pass_at_once():
    stream = TokenStream()
    assert tokens_of(take(stream, 0, 10)) == [(10,)]
    assert take(stream, 1, 11, 12, finish=STOP) == [TokenBatch((11, 12), STOP, 0, None, None)]
    assert stream.tokens == [10, 11, 12]


def test_duplicates_and_overlaps_are_taken_once():
    stream = TokenStream()
    take(stream, 0, 10, 11)
    assert take(stream, 0, 10, 11) == []
    assert tokens_of(take(stream, 1, 11, 12)) == [(12,)]


def test_a_gap_holds_what_follows_until_it_fills():
    stream = TokenStream()
    assert take(stream, 2, 12, now=5.0) == []
    assert take(stream, 3, 13, finish=STOP, now=6.0) == []
    assert stream.gap_since == 5.0
    assert tokens_of(take(stream, 0, 10, 11)) == [(10, 11), (12,), (13,)]
    assert stream.gap_since is None


def test_a_gap_is_not_younger_for_a_new_owner():
    stream = TokenStream()
    take(stream, 0, 10)
    take(stream, 2, 12, now=5.0)
    assert take(stream, 3, 13, epoch=(0, 1), now=5.8) == []
    assert stream.gap_since == 5.0
    assert tokens_of(take(stream, 1, 11, 12, 13, epoch=(0, 2), now=5.9)) == [(11, 12, 13)]
    assert stream.gap_since is None


def test_too_much_behind_a_gap_breaks_the_stream():
    stream = TokenStream()
    for offset in range(1, MAX_HELD + 1):
        assert take(stream, offset, offset) == []
    assert isinstance(take(stream, MAX_HELD + 1, 1), Broken)


def test_a_new_owner_repeats_tokens_and_the_old_one_is_fenced():
    stream = TokenStream()
    take(stream, 0, 10)
    assert tokens_of(take(stream, 0, 10, 11, epoch=(0, 1))) == [(11,)]
    assert stream.epoch == Epoch(0, 1)
    assert take(stream, 0, 10) == [], "a late duplicate proves nothing"
    assert take(stream, 1, 99) == Fence(Epoch(0, 0))
    assert take(stream, 0, finish=STOP) == Fence(Epoch(0, 0))
    assert stream.tokens == [10, 11]


def test_the_last_tokens_of_the_old_owner_may_come_after_the_first_of_the_new_one():
    stream = TokenStream()
    assert take(stream, 1, 11, epoch=(0, 1)) == []
    assert tokens_of(take(stream, 0, 10, epoch=(0, 0))) == [(10,), (11,)]


def test_the_old_owner_may_not_fill_a_gap_beyond_the_handover():
    stream = TokenStream()
    take(stream, 0, 10, epoch=(0, 1))
    assert take(stream, 2, 12, epoch=(0, 1)) == []
    assert take(stream, 1, 99, epoch=(0, 0)) == Fence(Epoch(0, 0))


def test_nothing_of_an_older_attempt_counts():
    stream = TokenStream()
    take(stream, 0, 10)
    take(stream, 2, 12)
    stream.start_attempt(1)
    assert stream.gap_since is None
    assert take(stream, 1, 99) == Fence(Epoch(0, 0))
    assert tokens_of(take(stream, 1, 11, epoch=(1, 0))) == [(11,)]


def test_offsets_continue_after_tokens_known_before():
    stream = TokenStream(num_known=5)
    assert tokens_of(take(stream, 5, 15)) == [(15,)]


def test_an_end_before_tokens_already_sent_breaks_the_stream():
    stream = TokenStream()
    take(stream, 0, 10, 11)
    assert isinstance(take(stream, 0, 10, finish=STOP, epoch=(0, 1)), Broken)


def test_log_probabilities_stay_with_their_tokens():
    stream = TokenStream()
    logprobs = [TokenLogprobs(10, -1.0, []), TokenLogprobs(11, -2.0, [])]
    take(stream, 0, 10, logprobs=logprobs[:1], prompt_logprobs=[None], num_cached_tokens=16)
    taken = take(stream, 0, 10, 11, logprobs=logprobs, prompt_logprobs=[None])
    assert taken == [TokenBatch((11,), None, 16, (logprobs[1],), None)]
    assert stream.has_prompt_logprobs


ANSWER = list(range(100, 112))  # what every owner generates: sampling is deterministic


@st.composite
def handovers(draw) -> list[Delta]:
    """All deltas of a request that is handed over a few times, each owner repeating some tokens of the one before."""
    cuts = [0, *sorted(draw(st.sets(st.integers(1, len(ANSWER) - 1), max_size=3))), len(ANSWER)]
    deltas = []
    for hop, (start, end) in enumerate(pairwise(cuts)):
        first = start if start == 0 else draw(st.integers(0, start))
        position = first
        while position < end:
            until = max(start + 1, draw(st.integers(position + 1, end))) if position == first else position + 1
            finish = STOP if until == len(ANSWER) else None
            deltas.append(make_delta(position, *ANSWER[position:until], epoch=(0, hop), finish=finish))
            position = until
    return deltas


@settings(max_examples=300)
@given(st.data())
def test_any_order_and_repetition_gives_a_prefix_in_order_and_the_end_only_at_the_end(data):
    deltas = data.draw(handovers())
    sent = data.draw(st.permutations(deltas + data.draw(st.lists(st.sampled_from(deltas), max_size=4))))
    dropped = data.draw(st.sets(st.integers(0, len(sent) - 1), max_size=3))
    stream, received, ends = TokenStream(), [], []
    for index, delta in enumerate(sent):
        taken = [] if index in dropped else stream.take(delta, float(index))
        assert not isinstance(taken, Broken)
        for batch in [] if isinstance(taken, Fence) else taken:
            received += batch.tokens
            ends += [batch.finish] if batch.finish else []
    assert received == ANSWER[: len(received)] == stream.tokens
    assert ends == ([STOP] if len(received) == len(ANSWER) else [])


@given(handovers())
def test_each_sender_in_order_gives_everything(deltas):
    """What the network guarantees: order per sender. Here, owners also speak one after the other."""
    stream = TokenStream()
    received = [token for delta in deltas for batch in stream.take(delta, 0.0) for token in batch.tokens]
    assert received == ANSWER


@given(handovers(), st.integers(0, 2), st.data())
def test_a_new_attempt_completes_whatever_was_left(deltas, num_lost, data):
    stream = TokenStream()
    for delta in deltas[: data.draw(st.integers(0, max(0, len(deltas) - 1 - num_lost)))]:
        stream.take(delta, 0.0)
    stream.start_attempt(1)
    rest = [make_delta(at, ANSWER[at], epoch=(1, 0)) for at in range(stream.next_offset, len(ANSWER))]
    for old, new in zip(deltas, rest, strict=False):
        assert isinstance(stream.take(old, 0.0), Fence)
        stream.take(new, 0.0)
    for new in rest[len(deltas) :]:
        stream.take(new, 0.0)
    assert stream.tokens == ANSWER


@pytest.mark.parametrize("finish", [None, STOP])
def test_after_the_end_nothing_is_taken(finish):
    stream = TokenStream()
    take(stream, 0, 10, finish=STOP)
    assert take(stream, 1, 11, finish=finish) == []
