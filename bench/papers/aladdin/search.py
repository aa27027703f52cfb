"""Searches the fewest engines of a contender that keep a promise, and says what packing saves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from bench.harness.paired import ratio
from bench.papers.aladdin.setting import CONTENDERS, Case, Result, Setting, run_case

MOST_ENGINES = 64


@dataclass(frozen=True, slots=True)
class Search:
    """The fewest engines of one contender in one setting, for each percentage."""

    setting: Setting
    contender: str
    percents: tuple[float, ...]
    thetas: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """How many engines, with which theta; None: not `MOST_ENGINES`."""

    percent: float
    num_engines: int | None
    theta: float | None


Searches = Mapping[Search, Sequence[Found]]


def search(asked: Search) -> list[Found]:
    """Try each number of engines once, whatever percentage is asked for."""
    contender = CONTENDERS[asked.contender]

    @cache
    def result(theta: float | None, count: int) -> Result:
        return run_case(Case(asked.setting, asked.contender, theta, count))

    first = max(1, round(1.2 * min(asked.setting.bound(contender), MOST_ENGINES / 2)))
    found = []
    for percent in asked.percents:
        counts: list[tuple[int, float | None]] = []
        for theta in asked.thetas if contender.tunes else (None,):
            count = fewest(lambda count: result(theta, count).keeps(percent), first)  # noqa: B023
            counts += [] if count is None else [(count, theta)]
        found.append(Found(percent, *min(counts, key=lambda one: one[0], default=(None, None))))
    return found


def fewest(keeps: Callable[[int], bool], first: int) -> int | None:
    """Return the smallest number that keeps the promise, if more never break it; None: not even `MOST_ENGINES` do."""
    low, high, step = 0, first, 1
    while not keeps(high):
        if high >= MOST_ENGINES:
            return None
        low, high, step = high, min(high + step, MOST_ENGINES), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


# --- tables -----------------------------------------------------------------------------------------------------------


def rows(results: Searches) -> Iterator[Sequence[str]]:
    """A row for each search and percentage."""
    for asked, found in results.items():
        setting, contender = asked.setting, CONTENDERS[asked.contender]
        size, least = setting.size(contender), setting.bound(contender)
        for one in found:
            engines = (f">{MOST_ENGINES}", "")
            if one.num_engines is not None:
                engines = (str(one.num_engines), str(one.num_engines * size))
            words = setting.model, asked.contender, f"{setting.rate:g}", str(setting.seed), f"{one.percent:g}"
            yield *words, *engines, f"{least * size:.1f}", "" if one.theta is None else f"{one.theta:g}"


def savings(results: Searches) -> Iterator[Sequence[str]]:
    """The mean devices of each contender that does not pack, and what packing does without."""
    by_seed: dict[tuple[Search, float], list[float]] = {}
    for asked, found in results.items():
        size = asked.setting.size(CONTENDERS[asked.contender])
        for one in found:
            key = replace(asked, setting=replace(asked.setting, seed=0)), one.percent
            by_seed.setdefault(key, []).append(float("inf") if one.num_engines is None else one.num_engines * size)
    for (asked, percent), devices in by_seed.items():
        contender = CONTENDERS[asked.contender]
        least = asked.setting.bound(contender) * asked.setting.size(contender)
        packed = [by_seed.get((replace(asked, contender=name), percent)) for name in ("packing", "packing, in slack")]
        cells = ["" if own is None or contender.tunes else saved(own, devices) for own in packed]
        words = asked.setting.model, asked.contender, f"{asked.setting.rate:g}", f"{percent:g}"
        yield *words, f"{fmean(devices):.1f}", f"{least:.1f}", *cells


def saved(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """In per cent, with the interval of paired seeds if it is one."""
    found = ratio(ours, theirs)
    bounds = [100 * (1 - bound) for bound in (found.high, found.low) if bound is not None]
    interval = f" ({bounds[0]:.0f} to {bounds[1]:.0f})" if bounds and bounds[0] < bounds[1] else ""
    return f"{100 * (1 - found.mean):.0f}{interval}"
