"""What the runs say: means over seeds, and how others compare with everything on, seed by seed."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.combined.contenders import ALL_ON
from bench.combined.runs import Result
from bench.harness.paired import difference, ratio


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
