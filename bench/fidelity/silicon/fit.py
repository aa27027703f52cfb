"""Fits the host's time and the time of a request outside of iterations to simulated and measured closed loops.

The mean TPOT of a loop is nearly linear in the host's two terms: three simulations a run tell how. What a request takes
besides its iterations shifts TTFT by as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from bench.fidelity.silicon.runs import Latencies, SiliconRun
from engines.costs.fitting import robust_least_squares
from engines.costs.serving_systems import ServingSystem

RAISED_MS = {
    "per_step_ms": 1.0,
    "per_request_ms": 0.02,
    "prompt_layer_ms": 0.1,
    "request_ms": 10.0,
}  # to see what it does
WAY = "request_ms"  # the one that is not of the host's iterations


def raised(system: ServingSystem) -> list[ServingSystem]:
    """Return the system as it is, and with each of its terms raised."""
    terms = {term: getattr(system, term) + by_ms for term, by_ms in raised_ms(system).items()}
    return [system, *(msgspec.structs.replace(system, **{term: ms}) for term, ms in terms.items())]


def raised_ms(system: ServingSystem) -> dict[str, float]:
    """Return by how much each term is raised. A system that captures iterations with prompts has no time for layers."""
    return {term: ms for term, ms in RAISED_MS.items() if term != "prompt_layer_ms" or system.prompt_layer_ms}


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the systems of `raised` gave for a run: the first, and the others in their order."""

    run: SiliconRun
    base: Latencies
    raised: Sequence[Latencies]


def fit(system: ServingSystem, simulated: Sequence[Simulated]) -> ServingSystem:
    """Return the system with the terms that these runs ask for. The relative error of each run counts alike."""
    by_ms = raised_ms(system)
    host = [term for term in by_ms if term != WAY]
    measured = np.array([one.run.tpot_s for one in simulated])
    base = np.array([one.base.tpot_s for one in simulated])
    longer = np.array([[latencies.tpot_s for latencies in one.raised[: len(host)]] for one in simulated])
    slopes = (longer - base[:, None]) / [by_ms[term] for term in host]
    without = base - slopes @ [getattr(system, term) for term in host]
    found = robust_least_squares(slopes / measured[:, None], (measured - without) / measured)
    fitted = msgspec.structs.replace(system, **dict(zip(host, map(float, found), strict=True)))
    return msgspec.structs.replace(fitted, request_ms=_request_ms(system, fitted, simulated))


def _request_ms(system: ServingSystem, fitted: ServingSystem, simulated: Sequence[Simulated]) -> float:
    """The change of TTFT with the least sum of relative errors: a weighted median."""
    by_ms = raised_ms(system)
    missing = []
    for one in simulated:
        added_s = dict(zip(by_ms, [latencies.ttft_s - one.base.ttft_s for latencies in one.raised], strict=True))
        predicted_s, slope = one.base.ttft_s, added_s.pop(WAY) / by_ms[WAY]
        for term, by_s in added_s.items():
            predicted_s += by_s * (getattr(fitted, term) - getattr(system, term)) / by_ms[term]
        if slope > 0:
            missing.append(((one.run.ttft_s - predicted_s) / slope, slope / one.run.ttft_s))
    return max(0.0, system.request_ms + weighted_median(missing))


def weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Return the median of (value, weight); there is at least one."""
    ordered = sorted(values)
    half, passed = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return ordered[-1][0]
