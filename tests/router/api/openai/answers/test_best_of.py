"""More answers than are shown, and log-probabilities of prompts."""

import pytest

from mesh.wire.requests import FinishReason, TokenLogprobs
from tests.router.api.test_errors import error_of


def says_with(gateway, script, likelihoods):
    """Answers of one token, each as likely as it is said."""
    left = iter(likelihoods)

    def play(spec):
        logprob = next(left)
        entry = TokenLogprobs(20 - round(logprob), logprob, [])
        return [script.batch(entry.token, finish=FinishReason.LENGTH, logprobs=[entry])]

    gateway.router.script = play


async def test_the_best_of_several_answers_are_shown(gateway, script):
    says_with(gateway, script, [-3.0, -1.0, -2.0])
    body = (await gateway.complete(n=2, best_of=3)).json()
    assert len(gateway.router.specs) == 3
    assert all(spec.sampling.logprobs == 0 for spec in gateway.router.specs)
    texts = [gateway.model.tokenizer.decode([20 + minus]) for minus in (1, 2)]
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == list(enumerate(texts))
    assert body["choices"][0]["logprobs"] is None
    assert body["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize(("n", "best_of", "stream"), [(3, 2, False), (1, 2, True), (1, 129, False), (None, 0, False)])
async def test_a_best_of_that_cannot_be(gateway, n, best_of, stream):
    error_of(await gateway.complete(n=n, best_of=best_of, stream=stream), 400, param="best_of")


@pytest.mark.parametrize("route", ["chat", "complete"])
async def test_log_probabilities_of_the_prompt(gateway, script, route):
    def play(spec):
        entries = [None, TokenLogprobs(spec.prompt[1], -2.0, [(spec.prompt[1], -2.0), (5, -2.5)])]
        return [script.batch(10, finish=FinishReason.LENGTH, prompt=tuple(entries))]

    gateway.router.script = play
    body = (await getattr(gateway, route)(prompt_logprobs=2)).json()
    found = body["prompt_logprobs"] if route == "chat" else body["choices"][0]["prompt_logprobs"]
    token = str(gateway.router.specs[0].prompt[1])
    assert found[0] is None
    assert (found[1][token]["logprob"], found[1][token]["rank"]) == (-2.0, 1)
    assert found[1]["5"]["rank"] == 2
    assert gateway.router.specs[0].sampling.prompt_logprobs == 2
    error_of(await getattr(gateway, route)(prompt_logprobs=2, stream=True), 400, param="prompt_logprobs")
