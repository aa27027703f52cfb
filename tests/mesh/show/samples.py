"""Pictures of each kind, with names that do their worst."""

from mesh.show.picture import Bars, Cells, Curves, Flag, GridCell, Lanes, LaneSpan, Limit, Look, Picture, Series, Spot

HOSTILE = "<script>alert(1)</script>"
FORMULA = r"$\frac{1}{$"
HIDDEN = "_none"
NAMES = (HOSTILE, FORMULA, HIDDEN, "a&b", "\x1b[31mred\x07", "模型 🎉", "x" * 300)

CURVES = Curves(
    "latency",
    "ms",
    "requests, %",
    [
        Series("mean", [1, 2, 4], [10, float("nan"), 30], [5, float("nan"), 20], [12, float("nan"), 50], Look.MARKED),
        Series("ideal", [1, 4], [1, 4], look=Look.GUIDE),
        Series("lost", [1, 4], [3, 1], look=Look.DOTTED),
        Series("measured", [1, 3], [2, 9], look=Look.POINTS),
    ],
    (Limit(3, "promise: 3 ms"), Limit(20, "goal", is_upright=False)),
    (Spot(2, 15, "found"),),
)
BARS = Bars(
    "attainment", "%", ["chat", "code"], {"now": [91.25, None], "then": [99, 88]}, (Limit(90, "goal"),), (0, 100)
)
LANES = Lanes(
    "what happened",
    "ms",
    ["gateway", "decode-0"],
    [LaneSpan("gateway", "queue", 0, 30), LaneSpan("decode-0", "decode", 30, 100)],
    [Flag("decode-0", 30, "first token"), Flag("decode-0", 40, "moved")],
    [Limit(50, "promised TTFT")],
)
CELLS = Cells(
    "plan", ["now", "then"], {"engine-0": [GridCell(["chat"], "prefill"), GridCell([], "decode", is_marked=True)]}
)
KINDS = {"curves": CURVES, "bars": BARS, "lanes": LANES, "cells": CELLS}


def hostile() -> Picture:
    """All kinds of panels with such names everywhere."""
    worst = HOSTILE
    return Picture(
        worst,
        [
            Curves(
                worst,
                worst,
                worst,
                [Series(name, [0, 1], [0, 1]) for name in NAMES],
                [Limit(0.5, worst)],
                [Spot(0, 0, worst)],
            ),
            Bars(worst, worst, NAMES, {name: [1.0] * len(NAMES) for name in NAMES[:2]}),
            Lanes(
                worst,
                worst,
                NAMES,
                [LaneSpan(name, name, 0, 1) for name in NAMES],
                [Flag(name, 1, name) for name in NAMES],
            ),
            Cells(worst, [worst], {name: [GridCell(NAMES, name)] for name in NAMES}),
        ],
    )
