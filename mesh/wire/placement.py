"""Statuses of the placement daemon, and the decisions in them."""

import msgspec

from mesh.wire.bounds import Count, Estimate, Name, Seconds, Until
from mesh.wire.control import EnginePlace, ProcessState
from mesh.wire.status import Memory


class Forecast(msgspec.Struct, frozen=True):
    """Attainment and mean normalised latency."""

    attainment: Estimate
    normalized_latency: Estimate


class ServiceForecast(msgspec.Struct, frozen=True):
    """Tells what a service was asked for in an interval, and how much of it was, or would have been, in time.

    Lengths are mean and deviation, in tokens. Attainments are None where nobody asked for anything.
    """

    name: Name
    rate: Estimate  # requests a second
    num_input: tuple[Estimate, Estimate]
    num_output: tuple[Estimate, Estimate]
    achieved: Estimate | None = None
    predicted: Estimate | None = None  # with the plan that was in force
    proposed: Estimate | None = None  # with the one that was found
    dispersion: Estimate = 1.0  # variance of the number of requests in some seconds, over its mean; 1: Poisson arrivals


class Decision(msgspec.Struct, frozen=True):
    """Tells what the placement daemon made of an interval. ``places``: what it found for each engine; empty:
    nothing.
    """

    interval: Count
    verdict: str
    reason: str  # in words
    plan: Count  # that was in force
    interval_s: Seconds
    search_s: Seconds = 0.0
    places: dict[str, EnginePlace] = {}
    services: list[ServiceForecast] = []
    achieved: Forecast | None = None
    predicted: Forecast | None = None
    proposed: Forecast | None = None
    num_loads: Count = 0  # copies of weights that the change takes
    homeless: list[str] = []  # services without a place, and why, a line each


class PoolStatus(msgspec.Struct, frozen=True):
    """Engines that are counted together: how many are needed, and how many are wanted within their bounds."""

    name: Name
    num_wanted: Count
    least: Count
    most: Count
    need: Estimate
    problem: str = ""  # why the need cannot be met, or is not known


class PlacementStatus(msgspec.Struct, frozen=True, tag=True):
    """The placement daemon's own account of itself."""

    seq: Count
    state: ProcessState
    host: Name
    pid: Count
    mode: str  # "apply", "shadow" or "off"
    doing: str  # in words
    plan: Count  # the newest one that the engines know of; 0: none
    next_decision_s: Until  # until then, at the earliest
    memory: Memory | None = None  # None: it has not heard enough yet
    interval_age_s: Seconds = 0.0
    decision: Decision | None = None  # the last one
    decision_age_s: Seconds = 0.0
    made: Decision | None = None  # the one that the plan in force comes from, if it is this daemon's
    made_age_s: Seconds = 0.0
    decisions_total: dict[str, int] = {}  # by verdict
    changes_total: Count = 0  # plans that were carried out
    changes_failed_total: Count = 0
    error: str | None = None  # what went wrong last, until something goes right
    pools: list[PoolStatus] = []  # those that it scales
