"""Searches for the rate at which a deployment keeps its promise, with runs that are as long as they need to be."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulation.capacity import find_between
from simulation.experiment import Experiment
from simulation.loads.sources import DescribedLoad, LoadLevel, SyntheticLoad
from simulation.reports.summary import Summary

FIRST_REQUESTS = 1000  # of a run
MOST_DOUBLINGS = 1  # of a run that leaves it open whether the promise is kept
PRECISION = 0.1  # of the rate, relative


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """Runs of one deployment, whose load has lengths and arrivals, between two rates in requests a second.

    ``attainment`` is to be kept. A run has ``num_requests``, and twice as many where the bounds of its
    attainment hold the promise, or it is not steady.
    """

    base: Experiment
    attainment: float
    lowest: float
    highest: float
    num_requests: int = FIRST_REQUESTS
    precision: float = PRECISION

    @property
    def name(self) -> str:
        return self.base.name

    def runs(self, on_share: Callable[[float], None] | None = None) -> list[Summary]:
        """Return the last run of each rate that was tried. ``on_share`` hears, between 0 and 1, what is over."""
        done: dict[float, Summary] = {}

        def attainment_at(rate: float) -> float:
            run = done[rate] = self._run(rate)
            if on_share is not None:
                on_share(len(done) / (1 + len(done)))
            return run.attainment_for(self.attainment)

        find_between(attainment_at, self.attainment, self.lowest, self.highest, self.precision)
        return list(done.values())

    def _run(self, rate: float) -> Summary:
        load = self.base.load
        assert isinstance(load, SyntheticLoad | DescribedLoad), "only those can be made longer"
        limit = self.num_requests
        for _ in range(MOST_DOUBLINGS + 1):
            summary = replace(self.base, load=load.with_requests(limit), level=LoadLevel(rate)).run()
            if summary.is_clear(self.attainment):
                break
            limit *= 2
        return summary
