"""DeepSpeed beside transformers: both are asked the same, in turns, and the first round does not count."""

import torch

from bench.papers.scls.worker import BATCHES, NEW_TOKENS, measured, question, rows


def test_prompts_are_padded_to_the_longest_and_the_same_each_time():
    asked, again = question(8, 32), question(8, 32)
    assert asked["inputs"].shape == asked["attention_mask"].shape == (8, 32)
    assert asked["attention_mask"].sum(dim=1).tolist() == [4 * one for one in range(8, 0, -1)]
    assert torch.equal(asked["inputs"], again["inputs"])


def test_generators_take_turns_and_the_first_round_warms_up():
    called: list[str] = []

    def generate(name):
        def told(*, min_new_tokens, max_new_tokens, **_):
            assert min_new_tokens == max_new_tokens == NEW_TOKENS
            called.append(name)

        return told

    found = measured({"transformers": generate("t"), "DeepSpeed": generate("d")}, rounds=2)
    assert "".join(called) == "td" * len(BATCHES) + "dt" * len(BATCHES) + "td" * len(BATCHES)
    assert [*found] == [*BATCHES]
    assert all(len(seconds) == 2 for times in found.values() for seconds in times.values())


def test_ratios_are_of_the_same_rounds():
    found = {(8, 32): {"transformers": [1.0, 2.0], "DeepSpeed": [2.0, 4.0]}}
    assert rows(found) == [("8", "32", "2.00", "1.00", "2.00 (2.00 to 2.00)")]
