"""Measured against predicted times as a picture."""

from collections.abc import Callable, Iterable, Sequence

from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint, Times, predict_s
from engines.costs.step_cost import StepCost
from mesh.show.picture import Curves, Look, Panel, Picture, Series

TOLERANCE = 0.1
FITTED, HELD_OUT, PREDICTED, ERROR = "fitted", "held out", "as fitted", "error of prediction"


def profile_picture(title: str, cost: StepCost, fitted: Times, held_out: Times) -> Picture:
    """Prefills by tokens and decode steps by requests, measured and as fitted; then all of them against predictions,
    in a band of 10 %.
    """
    kinds = (PrefillPoint, DecodePoint, MixedPoint)
    known = [kind for kind in kinds if any(type(point) is kind for point in (*fitted, *held_out))]
    panels: list[Panel] = [
        _by_size("Prefill without a prefix", "tokens", cost, fitted, held_out, _prompt_tokens),
        _by_size("Decode step", "requests", cost, fitted, held_out, _num_decodes),
    ]
    return Picture(title, [*panels, *(_against(kind, cost, fitted, held_out) for kind in known)])


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


def _against(kind: type[Point], cost: StepCost, fitted: Times, held_out: Times) -> Curves:
    names = {PrefillPoint: "Prefill", DecodePoint: "Decode step", MixedPoint: "Both in one step"}
    chosen = {
        name: [(point, time_s) for point, time_s in times.items() if type(point) is kind]
        for name, times in ((FITTED, fitted), (HELD_OUT, held_out))
    }
    curves = [
        Series(
            name,
            [1e3 * time_s for _, time_s in points],
            [1e3 * predict_s(cost, point) for point, _ in points],
            look=Look.POINTS,
        )
        for name, points in chosen.items()
    ]
    ends = _ends_ms(time_s for points in chosen.values() for _, time_s in points)
    low, high = ([factor * end for end in ends] for factor in (1 - TOLERANCE, 1 + TOLERANCE))
    band = Series("within 10 %", ends, ends, low, high, look=Look.GUIDE)
    return Curves(f"{names[kind]}: error", "measured, ms", "predicted, ms; band: 10 %", [*curves, band], is_log=True)


def _ends_ms(times_s: Iterable[float]) -> Sequence[float]:
    known = list(times_s)
    return [800 * min(known), 1250 * max(known)]
