"""Aladdin's testbed (section 6.3): a machine of four devices under growing load, by who places requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean

from bench.harness.jobs import grouped
from bench.papers.aladdin.setting import CONTENDERS as ALL
from bench.papers.aladdin.setting import LARGEST, Case, Result, Setting

CONTENDERS = ("default", "JSQ", "packing", "packing, in slack")
LOADS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of what the four devices serve on average, with engines of table 3
GAINS = ("violations: times fewer (paper)", "kept: % more (paper)", "TPOT P99: % less (paper)")
PAPER = {"default": ("3.5", "", ""), "JSQ": ("", "51", "40")}  # "up to", on A100s, whichever the model
Results = Mapping[Case, Result]


def loaded(setting: Setting, share: float) -> Setting:
    """The setting at that share of what its devices serve on average."""
    packing = ALL["packing"]
    capacity = LARGEST / setting.size(packing) / (setting.bound(packing) / setting.rate)
    return replace(setting, rate=share * capacity)


def rows(results: Results) -> Iterator[Sequence[str]]:
    for case, own in grouped(results, _of_any_seed).items():
        mark = "backlog grows" if any(one.grows for one in own) else ""
        kept, tpot_ms = 100 * fmean(one.attainment for one in own), 1e3 * fmean(one.tpot_p99_s for one in own)
        yield case.setting.model, case.contender, f"{case.setting.rate:.2f}", f"{kept:.1f}", f"{tpot_ms:.1f}", mark


def gains(results: Results) -> Iterator[Sequence[str]]:
    """What packing gains over each other at the load where it gains most, as the paper's "up to". Violations are
    compared where packing has some.
    """
    by_seed = grouped(results, _of_any_seed)
    pairs: dict[tuple[str, str, str], list[tuple[Sequence[Result], Sequence[Result]]]] = {}
    for case, own in by_seed.items():
        if not ALL[case.contender].tunes:
            continue
        for other, theirs in by_seed.items():
            if other.setting == case.setting and not ALL[other.contender].tunes:
                pairs.setdefault((case.setting.model, case.contender, other.contender), []).append((own, theirs))
    for (model, ours, rival), of_loads in pairs.items():
        violations = max((_lost(theirs) / _lost(own) for own, theirs in of_loads if _lost(own)), default=inf)
        kept = max(_more(1 - _lost(own), 1 - _lost(theirs)) for own, theirs in of_loads)
        tpot = max(100 * (1 - _tpot(own) / _tpot(theirs)) for own, theirs in of_loads)
        cells = f"{violations:.1f}", f"{kept:.0f}", f"{tpot:.0f}"
        told = (f"{cell} ({word})" if word else cell for cell, word in zip(cells, PAPER[rival], strict=True))
        yield model, f"{ours} against {rival}", *told


def _more(ours: float, theirs: float) -> float:
    """In per cent."""
    return 100 * (ours / theirs - 1) if theirs else inf


def _lost(results: Sequence[Result]) -> float:
    return 1 - fmean(one.attainment for one in results)


def _tpot(results: Sequence[Result]) -> float:
    return fmean(one.tpot_p99_s for one in results)


def _of_any_seed(case: Case) -> Case:
    return replace(case, setting=replace(case.setting, seed=0))
