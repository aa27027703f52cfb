"""The comparison with and without speculation: its prompts, and what it makes of the rates."""

from bench.peers.rounds import Round
from bench.peers.speculation import AGAIN, COPY, OURS, OURS_ON, TALK, PromptCase, ratios, text_of


def test_ratios_are_of_rounds_beside_each_other():
    rates = {OURS: {"copying, 1": [10.0, 20.0, 40.0]}, OURS_ON: {"copying, 1": [20.0, 44.0, 72.0]}}
    assert ratios(rates, "copying, 1") == {OURS_ON: 2.0}
    assert ratios(rates, "chat, 1") == {}


def test_prompts_of_a_case_are_of_its_kind_and_differ():
    for kind in (COPY, AGAIN, TALK):
        assert len({text_of(kind, number) for number in range(4)}) == 4
    assert "class Pace" in text_of(AGAIN, 0)
    assert str(PromptCase(TALK, 4)) == "chat, 4"


def test_prompts_that_are_given_are_taken_as_they_are():
    assert Round(1, 2, 1, seed=3, given=[[5, 6]]).prompts() == [[5, 6]]
