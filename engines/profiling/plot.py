"""Measured against predicted times as a picture."""

from collections.abc import Callable, Sequence

from engines.costs.measuring import DecodePoint, Point, PrefillPoint, Times, predict_s
from engines.costs.step_cost import StepCost
from mesh.show.picture import Curves, Look, Picture, Series

TOLERANCE = 0.1
FITTED, HELD_OUT, PREDICTED = "fitted", "held out", "as fitted"


def profile_picture(title: str, cost: StepCost, fitted: Times, held_out: Times) -> Picture:
    """Prefills by tokens and decode steps by requests, measured and as fitted; then all steps against predictions, in a
    band of 10 %.
    """
    panels = (
        _by_size("Prefill without a prefix", "tokens", cost, fitted, held_out, _prompt_tokens),
        _by_size("Decode step", "requests", cost, fitted, held_out, _num_decodes),
        _against(cost, fitted, held_out),
    )
    return Picture(title, panels, num_columns=3)


def _prompt_tokens(point: Point) -> int | None:
    return point.new_tokens if isinstance(point, PrefillPoint) and not point.cached_tokens else None


def _num_decodes(point: Point) -> int | None:
    return len(point.contexts) if isinstance(point, DecodePoint) else None


def _by_size(
    title: str, unit: str, cost: StepCost, fitted: Times, held_out: Times, size: Callable[[Point], int | None]
) -> Curves:
    """Where several points have one size, the fit is a band: they have contexts of different lengths."""
    curves = [
        Series(name, [x for x, _ in points], [1e3 * y for _, y in points], look=Look.POINTS)
        for name, times in ((FITTED, fitted), (HELD_OUT, held_out))
        if (points := [(size_, time_s) for point, time_s in times.items() if (size_ := size(point)) is not None])
    ]
    found: dict[int, list[float]] = {}
    for point in (*fitted, *held_out):
        if (size_ := size(point)) is not None:
            found.setdefault(size_, []).append(1e3 * predict_s(cost, point))
    sizes = sorted(found)
    low, high = ([edge(found[one]) for one in sizes] for edge in (min, max))
    middle = [(one + other) / 2 for one, other in zip(low, high, strict=True)]
    curves.append(Series(PREDICTED, sizes, middle, low, high))
    return Curves(title, unit, "ms", curves, is_log=True)


def _against(cost: StepCost, fitted: Times, held_out: Times) -> Curves:
    curves = [
        Series(
            name,
            [1e3 * time_s for time_s in times.values()],
            [1e3 * predict_s(cost, point) for point in times],
            look=Look.POINTS,
        )
        for name, times in ((FITTED, fitted), (HELD_OUT, held_out))
    ]
    ends = _ends_ms([*fitted.values(), *held_out.values()])
    low, high = ([factor * end for end in ends] for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    band = Series("within 10 %", ends, ends, low, high, look=Look.GUIDE)
    return Curves("All steps; band: within 10 %", "measured, ms", "predicted, ms", [*curves, band], is_log=True)


def _ends_ms(times_s: Sequence[float]) -> Sequence[float]:
    return [800 * min(times_s), 1250 * max(times_s)]
