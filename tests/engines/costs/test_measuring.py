import pytest

from engines.costs.calibration import calibrate
from engines.costs.measuring import (
    DecodePoint,
    MixedPoint,
    Point,
    PrefillPoint,
    Rounds,
    Scratch,
    as_typical,
    fit,
    load_of_point,
    predict_s,
    time_points,
)
from engines.costs.step_cost import StepCost, load_of
from mesh.wire.status import DecodeCost, PrefillCost
from tests.engines.scripted import ScriptedExecutor

COST = StepCost(PrefillCost(0.01, 1e-3, 1e-6, 1e-5), DecodeCost(0.02, 2e-3, 3e-6, ((1, 0.01), (2, 0.02), (16, 0.04))))
SCRATCH = Scratch("s", num_blocks=64, block_size=4)


def test_points_stand_for_batches_over_blocks_of_their_own():
    batch = SCRATCH.batch(DecodePoint((4, 5, 1)))
    assert batch is not None
    assert [(chunk.start, list(chunk.blocks)) for chunk in batch.chunks] == [(3, [0]), (4, [1, 2]), (0, [3])]
    prefill = SCRATCH.batch(PrefillPoint(6, 8))
    assert prefill is not None
    assert [(len(chunk.tokens), chunk.start, len(chunk.blocks)) for chunk in prefill.chunks] == [(6, 8, 4)]


def test_the_batch_of_a_point_is_its_load():
    for point in (DecodePoint((4, 5, 1)), PrefillPoint(6, 8), MixedPoint(((6, 8), (3, 0)), (4, 7))):
        batch, load = SCRATCH.batch(point), load_of_point(point)
        assert batch is not None
        assert load_of(batch) == load._replace(chunks=list(load.chunks))


def test_points_that_do_not_fit_are_left_out():
    assert SCRATCH.batch(PrefillPoint(250, 7)) is None
    points: list[Point] = [PrefillPoint(250, 7), PrefillPoint(250, 6)]
    assert list(time_points(ScriptedExecutor(COST), SCRATCH, points, 1).fastest()) == [PrefillPoint(250, 6)]


def test_the_fastest_round_after_the_first_counts():
    points: list[Point] = [PrefillPoint(8), PrefillPoint(16), DecodePoint((9, 9))]
    steps: list[None] = []
    rounds = time_points(ScriptedExecutor(COST, slow_every=2), SCRATCH, points, 2, lambda: steps.append(None))
    assert rounds.fastest() == {point: pytest.approx(predict_s(COST, point)) for point in points}
    assert len(steps) == 9


def test_costs_have_the_level_of_all_rounds_and_no_step_spoils_it():
    rounds = Rounds({PrefillPoint(8): [2.0, 1.0], DecodePoint((9,)): [1.0, 1.5], DecodePoint((9, 9)): [2.0, 200.0]})
    assert rounds.typical(PrefillPoint) == 1.5
    assert rounds.typical(DecodePoint) == (1.0 + 1.5 + 1.0 + 3.0) / 4
    assert rounds.typical(MixedPoint) == 1.0
    typical = as_typical(COST, rounds)
    assert predict_s(typical, PrefillPoint(30, 5)) == pytest.approx(1.5 * predict_s(COST, PrefillPoint(30, 5)))
    assert predict_s(typical, DecodePoint((7, 8))) == pytest.approx(1.625 * predict_s(COST, DecodePoint((7, 8))))


def test_what_calibration_measures_it_predicts():
    costs = calibrate(ScriptedExecutor(COST), Scratch("s", 1000, 16), chunk_tokens=256)
    points: list[Point] = [PrefillPoint(100, 0), PrefillPoint(200, 300), DecodePoint((50,)), DecodePoint((70,) * 6)]
    for point in points:
        assert predict_s(costs, point) == pytest.approx(predict_s(COST, point), rel=0.01)


@pytest.mark.parametrize("chunk_tokens", [1, 256])
def test_one_block_is_enough_to_calibrate(chunk_tokens: int):
    costs = calibrate(ScriptedExecutor(COST), Scratch("s", 1, 2), chunk_tokens)
    assert predict_s(costs, DecodePoint((1,))) > 0


def test_a_fit_needs_both_kinds():
    with pytest.raises(ValueError, match="no samples"):
        fit({PrefillPoint(8): 0.1})
