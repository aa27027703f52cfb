"""Advice as a picture: how many engines keep the promise, and what a token may take against what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.costs.advice import Advice, LatencyPromise, Lengths, trade_off
from mesh.show.pages import Page, PageTable
from mesh.show.picture import Bars, Curves, Limit, Look, Picture, Series, Spot

FARTHEST = 1.6  # times the promised TPOT that is drawn
DEAREST = 4.0  # times the devices of the best that are drawn


@dataclass(frozen=True, slots=True)
class EnginesTried:
    """Engines of one configuration in a simulation, and the share of requests that they kept the promise to."""

    name: str
    num_engines: int
    num_devices: int  # of all of them
    attainment: float


@dataclass(frozen=True, slots=True)
class Tried:
    """What was simulated for ``rate`` requests a second. ``goal``: the share that is to be kept."""

    engines: Sequence[EnginesTried]
    goal: float
    rate: float
    policy: str

    @property
    def fewest(self) -> EnginesTried | None:
        """What keeps the goal with the fewest devices, and of those what keeps most."""
        kept = [one for one in self.engines if one.attainment >= self.goal]
        return min(kept, key=lambda one: (one.num_devices, -one.attainment), default=None)

    def words(self) -> str:
        of_what = f"keep {self.goal:.0%} of the promises to {self.rate:g} requests/s"
        how = f"simulated with the policy {self.policy}"
        fewest = self.fewest
        if fewest is None:
            return f"no number of engines that was tried would {of_what}; {how}"
        devices = "1 device" if fewest.num_devices == 1 else f"{fewest.num_devices} devices"
        return f"cheapest to {of_what}: {_engines(fewest.num_engines)} {fewest.name} ({devices}); {how}"

    def for_programs(self) -> dict[str, Any]:
        rows = [
            {"profile": one.name, "engines": one.num_engines, "devices": one.num_devices, "attainment": one.attainment}
            for one in self.engines
        ]
        fewest = self.fewest
        best = None if fewest is None else {"profile": fewest.name, "engines": fewest.num_engines}
        return {"goal": self.goal, "policy": self.policy, "fewest": best, "tried": rows}


def advice_page(
    title: str,
    found: Mapping[str, Advice],
    chosen: str | None,
    lengths: Lengths,
    promise: LatencyPromise,
    rate: float,
    tried: Tried | None = None,
) -> Page:
    """``rate``: requests a second that the engines are for."""
    broken = [f"{name}: {advice.broken}" for name, advice in found.items() if advice.broken is not None]
    about = (
        f"prompts of {lengths.num_input:.0f} tokens and answers of {lengths.num_output:.0f}, on average; promised "
        f"TTFT {1e3 * promise.ttft_s:g} ms, TPOT {1e3 * promise.tpot_s:g} ms"
    )
    able = {name: advice for name, advice in found.items() if advice.broken is None}
    heads = ("engine", "devices of one", f"engines for {rate:g}/s", "devices in all", "TTFT, ms", "TPOT, ms", "limit")
    rows = [
        [
            f"{name} (best)" if name == chosen else name,
            str(advice.profile.num_devices),
            str(engines_for(advice, rate)),
            str(engines_for(advice, rate) * advice.profile.num_devices),
            f"{1e3 * advice.ttft_s:.0f}",
            f"{1e3 * advice.tpot_s:.1f}",
            advice.limited_by,
        ]
        for name, advice in able.items()
    ]
    picture = advice_picture(able, chosen, lengths, promise, rate, tried)
    tables = [PageTable("Configurations", heads, rows)]
    if tried is None:
        return Page(title, about, (picture,), tables=tables, notes=broken)
    tables.append(_tried_table(tried))
    return Page(title, about, (picture,), tables=tables, notes=[tried.words(), *broken])


def _tried_table(tried: Tried) -> PageTable:
    rows = [[one.name, str(one.num_engines), str(one.num_devices), f"{one.attainment:.1%}"] for one in tried.engines]
    return PageTable("Simulated", ("engine", "engines", "devices in all", "promises kept"), rows)


def advice_picture(
    able: Mapping[str, Advice],
    chosen: str | None,
    lengths: Lengths,
    promise: LatencyPromise,
    rate: float,
    tried: Tried | None = None,
) -> Picture:
    """Configurations that can keep the promise. The share that they keep stands first if it was simulated."""
    curves = []
    dearest = DEAREST * min((rate / advice.rate_per_device for advice in able.values()), default=1.0)
    for name, advice in able.items():
        points = [
            (rate * devices, 1e3 * tpot_s)
            for devices, tpot_s in trade_off(advice.profile, lengths)
            if tpot_s <= FARTHEST * promise.tpot_s and rate * devices <= dearest
        ]
        curves.append(Series(name, [x for x, _ in points], [y for _, y in points], look=Look.MARKED))
    spots = [
        Spot(rate / advice.rate_per_device, 1e3 * advice.tpot_s, "best")
        for name, advice in able.items()
        if name == chosen
    ]
    limit = Limit(1e3 * promise.tpot_s, f"promise: {1e3 * promise.tpot_s:g} ms", is_upright=False)
    trade_offs = Curves(f"TPOT against devices for {rate:g} requests/s", "devices", "TPOT, ms", curves, [limit], spots)
    if tried is not None and tried.engines:
        return Picture("How many engines keep the promise", (kept_panel(tried), trade_offs))
    return Picture("What a token may take, and what that costs", (trade_offs, _use_panel(able, chosen, promise)))


def kept_panel(tried: Tried) -> Curves:
    """Promises that are kept against devices, a line for each configuration."""
    lines = []
    for name in dict.fromkeys(one.name for one in tried.engines):
        own = [one for one in tried.engines if one.name == name]
        shares = [100 * one.attainment for one in own]
        lines.append(Series(name, [one.num_devices for one in own], shares, look=Look.MARKED))
    fewest = tried.fewest
    spots = [] if fewest is None else [_spot(fewest.num_devices, fewest.attainment, fewest.num_engines)]
    title = f"Requests that keep both promises, at {tried.rate:g}/s"
    return attainment_panel(title, "devices", lines, tried.goal, spots)


def attainment_panel(
    title: str, x_label: str, lines: Sequence[Series], goal: float, spots: Sequence[Spot] = ()
) -> Curves:
    """Shares in percent, with the goal across them."""
    limit = Limit(100 * goal, f"goal: {100 * goal:g}%", is_upright=False)
    return Curves(title, x_label, "%", lines, [limit], spots, y_range=(0, 105))


def _spot(x: float, attainment: float, num_engines: int) -> Spot:
    return Spot(x, 100 * attainment, _engines(num_engines))


def _engines(count: int) -> str:
    return "1 engine" if count == 1 else f"{count} engines"


def _use_panel(able: Mapping[str, Advice], chosen: str | None, promise: LatencyPromise) -> Bars:
    used = {
        "TTFT": [100 * advice.ttft_s / promise.ttft_s for advice in able.values()],
        "TPOT": [100 * advice.tpot_s / promise.tpot_s for advice in able.values()],
    }
    names = [f"{name.rpartition('-')[2]} (best)" if name == chosen else name.rpartition("-")[2] for name in able]
    return Bars("Use of the promise", "% of what is promised", names, used, [Limit(100, "promise")])


def engines_for(advice: Advice, rate: float) -> int:
    """How many engines a rate takes."""
    return -int(-rate // advice.rate)
