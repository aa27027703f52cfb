"""A request on its engine: what it may draw and hold, when it ends, and what its gateway is told, and told again."""

from math import inf

import pytest

from engines.engine_request import MOST_RESENT, EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from mesh.wire.requests import Epoch, FinishReason, RequestSpec, Sampling, TokenLogprobs
from tests.engines.conftest import MakeSequence, MakeSpec

EOS = 0
LENGTH, STOP = FinishReason.LENGTH, FinishReason.STOP


def continued(spec: RequestSpec, context_limit: int = 1024, **fields: float) -> EngineRequest:
    return EngineRequest.of(spec, Epoch(1), 100.0, frozenset({EOS}), context_limit, **fields)


def sampling(**fields: object) -> Sampling:
    return Sampling(**({"max_tokens": 8, "seed": 1} | fields))  # type: ignore[arg-type]


def draw(request: EngineRequest, *tokens: int, now: float = 1.0) -> list[FinishReason | None]:
    logprobs = request.spec.sampling.logprobs
    return [
        request.append(token, None if logprobs is None else TokenLogprobs(token, -1.0, []), now) for token in tokens
    ]


def logprobs_of(tokens: list[TokenLogprobs] | None) -> list[int]:
    return [one.token for one in tokens or []]


def test_a_continuation_has_the_ages_that_its_gateway_says(make_spec: MakeSpec):
    request = continued(make_spec(num_prompt=3, generated=[7, 8], age_s=4.0, first_token_age_s=1.5))
    assert (request.arrived_at, request.first_token_at, request.came_at) == (96.0, 98.5, 100.0)
    assert (request.num_prompt, request.num_generated, request.num_delivered, request.num_held) == (3, 2, 2, 0)
    assert request.generated == [7, 8]


@pytest.mark.parametrize(("max_tokens", "context_limit", "left"), [(5, 100, 3), (50, 12, 7)])
def test_what_is_left_is_bounded_by_the_request_and_by_the_context(
    make_spec: MakeSpec, max_tokens: int, context_limit: int, left: int
):
    spec = make_spec(num_prompt=3, max_tokens=max_tokens, generated=[7, 8])
    assert continued(spec, context_limit).num_left == left


def test_a_slice_counts_the_tokens_that_are_drawn_here(make_spec: MakeSpec):
    request = continued(make_spec(num_prompt=3, max_tokens=9, generated=[7, 8]))
    assert (request.num_left_here, request.has_used_slice) == (7, False)
    request.slice_tokens = 2
    draw(request, 5)
    assert (request.num_left_here, request.has_used_slice) == (1, False)
    draw(request, 5)
    assert (request.num_left_here, request.has_used_slice) == (0, True)
    request.slice_tokens = 100
    assert request.num_left_here == request.num_left == 5


def test_it_decodes_while_one_sampled_token_is_uncomputed(make_sequence: MakeSequence):
    request = make_sequence(num_prompt=4)
    request.num_computed = 3
    assert not request.is_decoding  # that token is the prompt's last
    request.num_computed = 4
    draw(request, 5)
    assert request.is_decoding
    draw(request, 5)
    assert (request.num_uncomputed, request.is_decoding) == (2, False)


@pytest.mark.parametrize(
    ("fields", "tokens", "reasons"),
    [
        ({"max_tokens": 3}, (5, 5, 5), [None, None, LENGTH]),
        ({}, (5, EOS), [None, STOP]),
        ({"ignore_eos": True}, (EOS, 5), [None, None]),
        ({"stop_token_ids": (6,)}, (5, 6), [None, STOP]),
        ({"stop_token_ids": (6,), "ignore_eos": True}, (EOS, 6), [None, STOP]),
        ({"min_tokens": 2}, (EOS, EOS), [None, STOP]),
        ({"max_tokens": 2, "min_tokens": 2}, (5, EOS), [None, STOP]),
    ],
)
def test_it_ends_with_the_token_that_says_so(
    make_sequence: MakeSequence, fields: dict[str, object], tokens: tuple[int, ...], reasons: list[FinishReason | None]
):
    assert draw(make_sequence(sampling=sampling(**fields)), *tokens) == reasons


def test_it_ends_with_its_context(make_spec: MakeSpec):
    assert draw(continued(make_spec(num_prompt=8, max_tokens=8), context_limit=10), 5, 5) == [None, LENGTH]


def test_its_first_token_is_timed_once(make_sequence: MakeSequence):
    request = make_sequence()
    draw(request, 5, now=3.0)
    draw(request, 5, now=4.0)
    assert request.first_token_at == 3.0


def test_slack_is_what_the_promised_pace_leaves_before_the_next_token(make_sequence: MakeSequence):
    request = make_sequence(slo_tpot_s=0.5)
    assert request.slack_s(now=2.0, step_s=0.1) == pytest.approx(-0.1)  # it has no token yet: the pace begins now
    draw(request, 5, 5, 5, now=2.0)
    assert request.slack_s(now=3.0, step_s=0.1) == pytest.approx(0.4)


@pytest.mark.parametrize(("service_ttft_s", "starves_at"), [(-inf, 102.0), (5.0, 105.0)])
def test_a_broken_promise_hurries_nobody_before_that_of_the_service(
    make_spec: MakeSpec, service_ttft_s: float, starves_at: float
):
    request = continued(make_spec(slo_ttft_s=2.0), service_ttft_s=service_ttft_s)
    assert (request.ttft_deadline, request.starves_at) == (102.0, starves_at)


def test_a_cached_prefix_leaves_a_token_to_compute(make_sequence: MakeSequence):
    pool, first, second = BlockPool(PagePool(8), 4), make_sequence("a"), make_sequence("b")
    first.blocks = pool.allocate(2)
    first.advance(8, pool)
    second.take_prefix(pool)
    assert (second.blocks, second.num_computed, second.num_cached) == (first.blocks[:1], 4, 4)


@pytest.mark.parametrize("asks", [{"prompt_logprobs": 0}, {}])
def test_whoever_wants_the_prompts_probabilities_or_no_prefixes_computes_all(
    make_sequence: MakeSequence, asks: dict[str, object]
):
    pool, first = BlockPool(PagePool(8), 4), make_sequence("a", num_prompt=12)
    first.blocks = pool.allocate(3)
    first.advance(12, pool)
    second = make_sequence("b", num_prompt=12, sampling=sampling(**asks))
    second.uses_prefixes = bool(asks)
    second.take_prefix(pool)
    assert (second.blocks, second.num_computed) == ([], 0)


def test_blocks_are_found_by_others_as_soon_as_they_are_full(make_sequence: MakeSequence):
    pool, request = BlockPool(PagePool(8), 4), make_sequence(num_prompt=9)
    request.blocks = pool.allocate(3)
    for num_tokens, num_found in ((3, 0), (1, 4), (3, 4), (1, 8), (1, 8)):
        request.advance(num_tokens, pool)
        found = pool.match(request.tokens, 9)
        assert len(found) * 4 == num_found
        pool.release(found)


def test_a_chunk_draws_only_behind_the_last_token(make_sequence: MakeSequence):
    request = make_sequence(num_prompt=6, sampling=sampling(prompt_logprobs=2))
    request.num_computed = 2
    part, whole = request.chunk(3), request.chunk(4)
    assert (list(part.tokens), part.start, part.draw, part.prompt_logprobs) == ([3, 4, 5], 2, None, 2)
    assert whole.draw is not None
    assert (whole.draw.position, whole.draw.num_prompt) == (6, 6)
    request.num_computed = 6
    draw(request, 5)
    assert request.chunk(1).prompt_logprobs is None


def test_what_is_kept_elsewhere_counts_as_computed_and_what_is_given_up_does_not(make_sequence: MakeSequence):
    pool, request = BlockPool(PagePool(8), 4), make_sequence()
    for release, num_computed in ((request.offload_blocks, 8), (request.release_blocks, 0)):
        request.blocks, request.granted, request.num_computed = pool.allocate(2), 12, 0
        request.advance(8, pool)
        release(pool)
        assert (request.blocks, request.granted, request.published) == ([], None, None)
        assert (request.num_computed, pool.num_free) == (num_computed, 8)


def test_a_delta_has_what_was_not_sent_yet(make_sequence: MakeSequence):
    request = make_sequence()
    draw(request, 5, 6)
    assert request.num_held == 2
    first = request.take_delta(None)
    draw(request, 7)
    second = request.take_delta(LENGTH)
    assert [(one.offset, one.tokens, one.finish) for one in (first, second)] == [(0, [5, 6], None), (2, [7], LENGTH)]
    assert (request.num_held, request.has_delivered) == (0, True)


@pytest.mark.parametrize(("offset", "tokens"), [(0, [5, 6, 7]), (2, [7]), (3, None)])
def test_what_was_sent_is_resent_from_any_offset(make_sequence: MakeSequence, offset: int, tokens: list[int] | None):
    request = make_sequence()
    draw(request, 5, 6, 7)
    request.take_delta(None)
    draw(request, 8)
    delta = request.resend_from(offset)
    assert (delta and delta.tokens) == tokens


def test_probabilities_are_resent_as_far_back_as_they_are_kept(make_sequence: MakeSequence):
    request = make_sequence(sampling=sampling(max_tokens=1000, logprobs=0))
    tokens = list(range(1, 2 * MOST_RESENT + 2))
    draw(request, *tokens[:-1])
    request.take_delta(None)
    assert request.first_known_offset == 0
    draw(request, tokens[-1])
    assert logprobs_of(request.take_delta(None).logprobs) == tokens[-1:]
    first = request.first_known_offset
    assert first == len(tokens) - MOST_RESENT
    assert request.resend_from(first - 1) is None
    again = request.resend_from(first)
    assert again is not None
    assert logprobs_of(again.logprobs) == again.tokens == tokens[first:]


def test_probabilities_are_kept_for_a_new_owner(make_sequence: MakeSequence):
    request = make_sequence(sampling=sampling(max_tokens=1000, logprobs=0))
    request.transfer = "t"
    draw(request, *range(1, 2 * MOST_RESENT + 2))
    request.take_delta(None)
    assert request.first_known_offset == 0


def test_probabilities_of_the_prompt_are_said_once(make_sequence: MakeSequence):
    request = make_sequence(sampling=sampling(prompt_logprobs=0))
    request.prompt_logprobs = [None, TokenLogprobs(2, -1.0, [])]
    draw(request, 5)
    assert request.take_delta(None).prompt_logprobs == [None, TokenLogprobs(2, -1.0, [])]
    draw(request, 6)
    assert request.take_delta(None).prompt_logprobs is None
    assert (request.resend_from(0), request.first_known_offset) == (None, 1)
    again = request.resend_from(1)
    assert again is not None
    assert again.tokens == [6]
