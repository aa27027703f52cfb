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

STEP_MS, REQUEST_MS = 1.0, 0.02  # by how much the host's terms are raised to see what they do


def raised(system: ServingSystem) -> tuple[ServingSystem, ServingSystem, ServingSystem]:
    """Return the system as it is, with a longer iteration, and with longer requests in each."""
    step_ms, request_ms = system.per_step_ms + STEP_MS, system.per_request_ms + REQUEST_MS
    return (
        system,
        msgspec.structs.replace(system, per_step_ms=step_ms),
        msgspec.structs.replace(system, per_request_ms=request_ms),
    )


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the three systems of `raised` gave for a run."""

    run: SiliconRun
    base: Latencies
    longer_step: Latencies
    longer_requests: Latencies


def fit(system: ServingSystem, simulated: Sequence[Simulated]) -> ServingSystem:
    """Return the system with the terms that these runs ask for. The relative error of each run counts alike."""
    slopes = np.array([_slopes(one) for one in simulated])
    measured = np.array([one.run.tpot_s for one in simulated])
    base = np.array([one.base.tpot_s for one in simulated])
    without = base - slopes @ [system.per_step_ms, system.per_request_ms]
    step_ms, request_ms = robust_least_squares(slopes / measured[:, None], (measured - without) / measured)
    fitted = msgspec.structs.replace(system, per_step_ms=float(step_ms), per_request_ms=float(request_ms))
    return msgspec.structs.replace(fitted, request_ms=_request_ms(system, fitted, simulated))


def _slopes(one: Simulated) -> tuple[float, float]:
    """Seconds of TPOT for each millisecond of the two terms."""
    base_s = one.base.tpot_s
    return (one.longer_step.tpot_s - base_s) / STEP_MS, (one.longer_requests.tpot_s - base_s) / REQUEST_MS


def _request_ms(system: ServingSystem, fitted: ServingSystem, simulated: Sequence[Simulated]) -> float:
    """The shift of TTFT with the least sum of relative errors: a weighted median."""
    steps = (fitted.per_step_ms - system.per_step_ms) / STEP_MS
    requests = (fitted.per_request_ms - system.per_request_ms) / REQUEST_MS
    missing = []
    for one in simulated:
        by_step, by_request = one.longer_step.ttft_s - one.base.ttft_s, one.longer_requests.ttft_s - one.base.ttft_s
        predicted_s = one.base.ttft_s + steps * by_step + requests * by_request
        missing.append((one.run.ttft_s - predicted_s, 1 / one.run.ttft_s))
    return max(0.0, system.request_ms + 1e3 * weighted_median(missing))


def weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Return the median of (value, weight); there is at least one."""
    ordered = sorted(values)
    half, passed = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= half:
            return value
    return ordered[-1][0]
