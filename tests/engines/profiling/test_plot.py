"""The picture of a profile."""

import pytest

from engines.costs.measuring import DecodePoint, PrefillPoint, predict_s
from engines.costs.presets import load_preset
from engines.profiling.plot import profile_picture

COST = load_preset("a100-llama2-70b-tp4").cost
POINTS = [PrefillPoint(64), PrefillPoint(512), PrefillPoint(64, 128), DecodePoint((100,)), DecodePoint((100, 900))]


def test_measured_points_are_beside_the_fit_and_its_errors():
    fitted = {point: 1.05 * predict_s(COST, point) for point in POINTS}
    held_out = {DecodePoint((300,)): 0.03}
    picture = profile_picture("engine", COST, fitted, held_out)
    assert [panel.title for panel in picture.panels] == [
        "Prefill without a prefix",
        "Decode step",
        "All steps; band: within 10 %",
    ]
    prefill, decode = picture.panels[:2]
    measured, curve = prefill.curves
    assert list(measured.x) == [64, 512]  # not the one with a prefix
    assert list(measured.y) == pytest.approx([1.05 * y for y in curve.y])
    assert [one.name for one in decode.curves] == ["fitted", "held out", "as fitted"]
    assert decode.curves[2].low[0] < decode.curves[2].high[0]  # contexts differ
