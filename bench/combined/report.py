"""What the runs say: means over seeds, and how others compare with everything on, seed by seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean

from scipy import stats

from bench.combined.contenders import ALL_ON
from bench.combined.runs import Result

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Compared:
    """A mean over seeds and the bounds that hold the true one in 95 % of cases; without bounds there was one seed."""

    mean: float
    low: float | None = None
    high: float | None = None

    def text(self, digits: int = 2) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Ours less theirs, of the same seeds: Student's t of paired differences."""
    mean = fmean(one - other for one, other in zip(ours, theirs, strict=True))
    if len(ours) < 2:
        return Compared(mean)
    bounds = stats.ttest_rel(ours, theirs).confidence_interval(CONFIDENCE)
    return Compared(mean, float(bounds.low), float(bounds.high))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Ours over theirs, of the same seeds: the geometric mean. Infinite if theirs are 0 and ours are not."""
    if min(*ours, *theirs) <= 0 or max(*ours, *theirs) == inf:
        whole = fmean(theirs)
        return Compared(fmean(ours) / whole if whole else inf)
    found = difference([log(one) for one in ours], [log(one) for one in theirs])
    if found.low is None or found.high is None:
        return Compared(exp(found.mean))
    return Compared(exp(found.mean), exp(found.low), exp(found.high))


def number_rows(found: Mapping[str, Sequence[float]]) -> Iterator[Sequence[str]]:
    """Of each contender the mean over seeds, and everything on as so many times that."""
    for name, values in found.items():
        times = ratio(found[ALL_ON], values).text() if name != ALL_ON and ALL_ON in found else ""
        yield name, f"{fmean(values):.1f}", times


def share_rows(found: Mapping[str, Sequence[Result]]) -> Iterator[Sequence[str]]:
    """Of each contender what it kept, what everything on kept more, and where promises were lost. In per cent and s."""
    ours = [100 * one.attainment for one in found.get(ALL_ON, ())]
    for name, results in found.items():
        kept = [100 * one.attainment for one in results]
        more = difference(ours, kept).text(1) if ours and name != ALL_ON else ""
        lost = {
            service: fmean(1 - one.by_service[service] for one in results) for service in sorted(results[0].by_service)
        }
        worst = max(lost, key=lost.__getitem__)
        tails = fmean(one.ttft_p99_s for one in results), 1e3 * fmean(one.tpot_p99_s for one in results)
        rejected = 100 * fmean(one.rejected for one in results)
        cells = f"{fmean(kept):.1f}", more, f"{rejected:.1f}", f"{tails[0]:.1f}", f"{tails[1]:.0f}"
        yield name, *cells, f"{worst}, {100 * (1 - lost[worst]):.0f}"
