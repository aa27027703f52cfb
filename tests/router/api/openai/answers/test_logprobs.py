"""Log-probabilities of whole answers are kept as JSON while they come."""

import json

import msgspec
import pytest

from router.api.openai.answers.logprobs import JsonLists


@pytest.mark.parametrize("parts", [[], [[]], [[], [1]], [[1], [], [2, None], ["a"]], [[{"b": 1}], [{}]]])
def test_lists_that_grow(parts):
    lists = JsonLists()
    for part in [[], *parts]:
        lists.add({"content": part, "refusal": None})
    expected = [entry for part in parts for entry in part]
    assert json.loads(msgspec.json.encode(lists.json())) == {"content": expected}
