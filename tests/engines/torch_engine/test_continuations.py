"""A request that goes on elsewhere from its tokens so far gets what it would have got: tokens and log-probabilities."""

import pytest

from mesh.messages import Sampling

PROMPT = [5, 9, 13, 40, 41, 42, 9, 13, 77]
COUNT = 24
SAMPLINGS = {
    "greedy": Sampling(max_tokens=64, seed=0, temperature=0.0),
    "seeded": Sampling(max_tokens=64, seed=11, temperature=0.9),
    "cut": Sampling(max_tokens=64, seed=12, temperature=1.3, top_p=0.8, top_k=30, min_p=0.02),
    "presence": Sampling(max_tokens=64, seed=13, temperature=0.7, presence_penalty=1.5),
    "frequency": Sampling(max_tokens=64, seed=14, temperature=0.7, frequency_penalty=0.9),
    "repetition": Sampling(max_tokens=64, seed=15, temperature=0.7, repetition_penalty=1.4),
    "bias": Sampling(max_tokens=64, seed=16, temperature=1.0, logit_bias={7: 4.0, 9: -5.0}),
    "min_tokens": Sampling(max_tokens=64, seed=17, temperature=1.0, min_tokens=20, stop_token_ids=tuple(range(3, 60))),
    "logprobs": Sampling(max_tokens=64, seed=18, temperature=0.8, logprobs=3),
}


def go_on(runner, name, sampling, known):
    """Tokens and log-probabilities after ``known``, whose KV is computed anew."""
    tokens, computed, logprobs = [*PROMPT, *known], 0, []
    while len(tokens) < len(PROMPT) + COUNT:
        [result] = runner.execute(runner.chunk(name, list(tokens), computed, sampling, len(PROMPT)))
        computed = len(tokens)
        tokens.append(result.token)
        logprobs.append(result.logprobs)
    return tokens[len(PROMPT) + len(known) :], logprobs


@pytest.mark.parametrize("cut", [1, 10, 23])
@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_continuation_is_exact(tiny, make_runner, name, cut):
    sampling = SAMPLINGS[name]
    tokens, logprobs = go_on(make_runner(tiny), "whole", sampling, [])
    assert len(set(tokens)) > 1 or name == "greedy", "a draw that is always the same proves nothing"
    rest, rest_logprobs = go_on(make_runner(tiny, seed=cut), "rest", sampling, tokens[:cut])
    assert rest == tokens[cut:]
    for one, other in zip(logprobs[cut:], rest_logprobs, strict=True):
        if one is None:
            assert other is None
            continue
        assert (one.token, [token for token, _ in one.top]) == (other.token, [token for token, _ in other.top])
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)


def test_penalties_count_what_was_generated_elsewhere(tiny, make_runner):
    """If a continuation forgot its tokens, or took them for its prompt, this would show."""
    sampling = SAMPLINGS["frequency"]
    tokens, _ = go_on(make_runner(tiny), "whole", sampling, [])
    runner, known = make_runner(tiny, seed=1), tokens[:20]
    as_prompt = [*PROMPT, *known]
    drawn = []
    for _ in range(COUNT - len(known)):
        [result] = runner.execute(runner.chunk("r", list(as_prompt), 0, sampling, len(as_prompt)))
        drawn.append(result.token)
        as_prompt.append(result.token)
    assert drawn != tokens[20:]
