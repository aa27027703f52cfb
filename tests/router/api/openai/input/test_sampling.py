"""Numbers at the edges of what a request may ask for."""

import pytest

from router.api.openai.input.sampling import MAX_WHOLE_LOGPROBS, MIN_TOP_P
from tests.router.api.test_errors import error_of

SUBNORMAL = 5e-324


@pytest.mark.parametrize("temperature", [1e-30, SUBNORMAL, -0.0, 0.0])
async def test_a_temperature_that_would_overflow_takes_the_likeliest(gateway, temperature):
    await gateway.complete(temperature=temperature)
    assert str(gateway.router.specs[0].sampling.temperature) == "0.0"


async def test_what_an_engine_s_floats_cannot_hold_is_rounded(gateway):
    await gateway.complete(top_p=1e-300, presence_penalty=-0.0, min_p=-0.0)
    sampling = gateway.router.specs[0].sampling
    assert (sampling.top_p, str(sampling.presence_penalty), str(sampling.min_p)) == (MIN_TOP_P, "0.0", "0.0")


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "seed",
                                  "max_tokens", "min_tokens", "n", "top_k", "logprobs"])  # fmt: skip
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "-1e308", "9223372036854775808", '"1"',
                                   "true", "[]", "{}", "-9223372036854775809", "9" * 5000, "0x1", "01",
                                   "1."])  # fmt: skip
async def test_numbers_that_are_none_or_out_of_bounds(gateway, name, value):
    body = f'{{"model":"tiny","prompt":"x","{name}":{value}}}'
    response = await gateway.client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert gateway.router.specs == []
    assert len(response.text) < 500


async def test_logprobs_that_a_gateway_would_have_to_hold_are_bounded(gateway):
    asked = {"n": 128, "max_tokens": 200, "logprobs": 20}
    assert MAX_WHOLE_LOGPROBS < 128 * 200 * 21
    assert "fewer" in error_of(await gateway.complete(**asked), 400, param="logprobs")
    assert (await gateway.complete(**asked, stream=True)).status_code == 200
    assert (await gateway.complete(**asked | {"n": 8})).status_code == 200
    echoed = {"prompt": [5] * 200, "max_tokens": 1, "n": 128, "logprobs": 20, "echo": True, "stream": True}
    error_of(await gateway.complete(**echoed), 400, param="logprobs")
