"""Advice as a picture: what a token may take against what it costs, and how much of the promise is used."""

from collections.abc import Mapping

from engines.costs.advice import Advice, LatencyPromise, Lengths, trade_off
from mesh.show.pages import Page, PageTable
from mesh.show.picture import Bars, Curves, Limit, Look, Picture, Series, Spot

FARTHEST = 1.6  # times the promised TPOT that is drawn
DEAREST = 4.0  # times the devices of the best that are drawn


def advice_page(
    title: str, found: Mapping[str, Advice], chosen: str | None, lengths: Lengths, promise: LatencyPromise, rate: float
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
    picture = advice_picture(able, chosen, lengths, promise, rate)
    return Page(title, about, (picture,), tables=[PageTable("Configurations", heads, rows)], notes=broken)


def advice_picture(
    able: Mapping[str, Advice], chosen: str | None, lengths: Lengths, promise: LatencyPromise, rate: float
) -> Picture:
    """Configurations that can keep the promise."""
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
    used = {
        "TTFT": [100 * advice.ttft_s / promise.ttft_s for advice in able.values()],
        "TPOT": [100 * advice.tpot_s / promise.tpot_s for advice in able.values()],
    }
    names = [f"{name.rpartition('-')[2]} (best)" if name == chosen else name.rpartition("-")[2] for name in able]
    return Picture(
        "What a token may take, and what that costs",
        (
            Curves(f"TPOT against devices for {rate:g} requests/s", "devices", "TPOT, ms", curves, [limit], spots),
            Bars("Use of the promise", "% of what is promised", names, used, [Limit(100, "promise")]),
        ),
    )


def engines_for(advice: Advice, rate: float) -> int:
    """How many engines a rate takes."""
    return -int(-rate // advice.rate)
