"""Decides how many engines of a pool should run, by what services need for their promises or by what peers go by."""

from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import NamedTuple, Protocol

from mesh.rules import ScalingRule
from mesh.topology.schema import ScalingSpec
from router.scaling.need import ServiceLoad, Work, engines_needed
from router.scaling.pools import EnginePhase, PoolView


class Need(NamedTuple):
    """Engines, not rounded. More start below ``least``; some end above ``enough``."""

    least: float
    enough: float


class NeedRule(Protocol):
    def __call__(self, view: PoolView, demands: Sequence[tuple[ServiceLoad, Work]], factor: float) -> Need:
        """Return how many engines are needed. ``factor``: what was learnt of the reckoning. Raise `ImpossibleError`."""


def by_promises(margin: float) -> NeedRule:
    """Ours: what `engines_needed` says, corrected; and enough for so much more before fewer run."""

    def wanted(view: PoolView, demands: Sequence[tuple[ServiceLoad, Work]], factor: float) -> Need:
        least = factor * engines_needed(demands)
        return Need(least, (1 + margin) * least)

    return wanted


def by_utilisation(target: float, margin: float) -> NeedRule:
    """Engines times the mean share of KV memory in use, over ``target``: what autoscalers of replicas do."""

    def wanted(view: PoolView, demands: Sequence[tuple[ServiceLoad, Work]], factor: float) -> Need:
        used = [1 - free / total for free, total in _blocks(view) if total]
        least = sum(used) / target
        return Need(least, (1 + margin) * least)

    return wanted


def by_freeness(low: float, high: float) -> NeedRule:
    """One engine more where mean freeness is below ``low``, one less above ``high`` (Llumnix, section 4.4)."""

    def wanted(view: PoolView, demands: Sequence[tuple[ServiceLoad, Work]], factor: float) -> Need:
        number = view.num_running
        serving = [status for status in view.statuses.values() if status.services]
        free = [min(service.freeness for service in status.services) for status in serving]
        finite = [value for value in free if isfinite(value)]
        if not finite or view.count(EnginePhase.STARTING, EnginePhase.LEAVING):  # what they change is not seen yet
            return Need(number, number)
        mean = sum(finite) / len(finite)
        return Need(number + (mean < low), number - (mean > high))

    return wanted


def _blocks(view: PoolView) -> list[tuple[int, int]]:
    """Free and all, of each engine that serves."""
    return [
        (sum(one.num_free_blocks for one in status.services), sum(one.num_blocks for one in status.services))
        for status in view.statuses.values()
    ]


def make_rule(spec: ScalingSpec) -> NeedRule:
    rules: dict[ScalingRule, Callable[[], NeedRule]] = {
        ScalingRule.PROMISES: lambda: by_promises(spec.margin),
        ScalingRule.UTILISATION: lambda: by_utilisation(spec.utilisation, spec.margin),
        ScalingRule.FREENESS: lambda: by_freeness(spec.low_freeness, spec.high_freeness),
    }
    return rules[spec.rule]()


def rounded(need: float) -> int:
    """Round up, but for what is arithmetic's own error."""
    return ceil(need - 1e-6)
