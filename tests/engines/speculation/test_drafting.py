"""A draft model computes what it lacks of each request, and then one draft of all of them a step."""

from collections.abc import Sequence

from engines.costs.step_cost import StepLoad
from engines.scheduling.batch import Chunk, ChunkResult, Drafting, Draw
from engines.speculation.drafting import FEW, loads_of, write_drafts
from mesh.wire.requests import Sampling

SAMPLING = Sampling(max_tokens=9, seed=1, logprobs=3)


def chunk(request: str, tokens: list[int], start: int, number: int) -> Chunk:
    end = len(tokens) if number else start + 1
    drafting = Drafting("small", [7], start, end, number)
    draw = Draw(SAMPLING, tokens, 1, len(tokens), request)
    return Chunk(request, tokens[-1:], len(tokens) - 1, [3], draw, drafting=drafting)


class Counting:
    """A model in which each token is followed by the next one; ``last`` is followed by none."""

    def __init__(self, last: int = 99) -> None:
        self.steps: list[Sequence[Chunk]] = []
        self._last = last

    def __call__(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
        self.steps.append(chunks)
        drawn = [None if one.draw is None or one.tokens[-1] >= self._last else one.tokens[-1] + 1 for one in chunks]
        return [ChunkResult(token) for token in drawn]


def test_drafts_are_written_in_turn_by_all_that_want_more():
    small = Counting()
    long = [*range(1, 10)]
    plain = Chunk("plain", [4], 0, [1], Draw(SAMPLING, [4], 1, 1, "plain"))
    drafted = write_drafts([chunk("a", long, 0, 3), plain, chunk("b", [1, 20, 30], 1, 1)], lambda _: small, lambda: 0.0)
    assert [list(one.drafts) for one in drafted.chunks] == [[10, 11, 12], [], [31]]
    assert drafted.chunks[1] is plain
    assert len(drafted.steps_s) == len(small.steps) == 3
    first, second, _ = small.steps
    assert [(list(one.tokens), one.start) for one in first] == [(long, 0), ([20], 1), ([30], 2)]
    assert [(list(one.tokens), one.start) for one in second] == [([10], 9)]
    draws = [one.draw for step in small.steps for one in step if one.draw is not None and one.request == "a"]
    assert [(draw.position, list(draw.drafts)) for draw in draws] == [(9, []), (10, [10]), (11, [10, 11])]
    assert all(draw.sampling.logprobs is None and draw.sampling.seed == 1 for draw in draws)


def test_a_model_that_draws_nothing_stops():
    drafted = write_drafts([chunk("a", [1, 2], 1, 4)], lambda _: Counting(last=4), lambda: 0.0)
    assert list(drafted.chunks[0].drafts) == [3, 4]


def test_who_is_far_behind_only_catches_up():
    small = Counting()
    drafted = write_drafts([chunk("a", [1, 2, 3], 0, 0)], lambda _: small, lambda: 0.0)
    assert list(drafted.chunks[0].drafts) == []
    assert [(list(one.tokens), one.draw) for step in small.steps for one in step] == [([1], None)]


def test_loads_are_those_of_its_steps():
    many = FEW + 10
    loads = loads_of([Drafting("small", [], 0, many, 3), Drafting("small", [], 18, 20, 2), Drafting("s", [], 5, 9, 0)])
    assert loads == [
        StepLoad([(many, 0)], 2 + 4, 2 * 20 + 4 * 9),
        StepLoad((), 2, many + 1 + 21),
        StepLoad((), 1, many + 2),
    ]
    assert loads_of([]) == []
