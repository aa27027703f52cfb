import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint
from engines.costs.step_cost import StepCost
from engines.profiling.grid import GridBounds, accuracy, points_to_fit, points_to_judge
from mesh.wire.status import DecodeCost, PrefillCost

bounds = st.builds(
    GridBounds,
    chunk_tokens=st.integers(1, 9000),
    max_running=st.integers(1, 300),
    max_context=st.integers(2, 9000),
    num_tokens=st.integers(1, 50_000),
)


@given(bounds)
def test_no_point_is_more_than_the_engine_computes(bounds: GridBounds):
    for point in (*points_to_fit(bounds), *points_to_judge(bounds)):
        match point:
            case PrefillPoint(new_tokens, cached_tokens):
                assert 1 <= new_tokens <= bounds.chunk_tokens
                assert new_tokens + cached_tokens <= min(bounds.max_context, bounds.num_tokens)
            case DecodePoint(contexts):
                assert 1 <= len(contexts) <= bounds.max_running
                assert sum(contexts) <= bounds.num_tokens
                assert max(contexts) <= bounds.max_context
            case MixedPoint(chunks, contexts):
                assert sum(new for new, _ in chunks) <= bounds.chunk_tokens
                assert len(chunks) + len(contexts) <= bounds.max_running
                assert sum(contexts) + sum(new + before for new, before in chunks) <= bounds.num_tokens


def test_the_judge_sees_other_points_than_the_fit():
    ordinary = GridBounds(chunk_tokens=256, max_running=32, max_context=8192, num_tokens=5000)
    fitted, judged = points_to_fit(ordinary), points_to_judge(ordinary)
    assert not set(fitted) & set(judged)
    assert PrefillPoint(256, 1024) in fitted
    for points in (fitted, judged):
        assert any(isinstance(point, MixedPoint) and point.contexts for point in points)
        assert any(isinstance(point, MixedPoint) and len(point.chunks) == 2 for point in points)
    assert any(isinstance(point, DecodePoint) and len(set(point.contexts)) > 1 for point in judged)


def test_accuracy_is_relative_and_of_one_kind():
    costs = StepCost(PrefillCost(0.0, 1.0), DecodeCost(1.0, 0.0))
    times: dict[Point, float] = {PrefillPoint(10): 8.0, PrefillPoint(20): 20.0, DecodePoint((5,)): 4.0}
    prefill = accuracy(costs, times, PrefillPoint)
    assert prefill.num_points == 2
    assert prefill.p50 == pytest.approx(0.125)
    assert accuracy(costs, times, DecodePoint).p90 == pytest.approx(0.75)
    with pytest.raises(ValueError, match="DecodePoint"):
        accuracy(costs, {}, DecodePoint)
