"""Simulates how many engines keep a promise, with numbers near what their costs alone ask for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from engines.costs.advice import Advice, LatencyPromise
from mesh.show.progress import working
from mesh.topology.schema import PolicySpec
from simulation.command.deployments import POOL, PromisedS, stand_in
from simulation.experiment import Experiment
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.sources import SyntheticLoad
from simulation.loads.trace_request import TraceRequest
from simulation.reports.advice import EnginesTried, engines_for

SHARES: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # of the engines that the costs alone ask for
ALL: Final = 0.999  # kept: more engines would show nothing
LIVES: Final = 3.0  # of a request that takes as long as it may: as long do requests arrive
MOST_REQUESTS: Final = 1000
MOST_ENGINES: Final = 64
POLICY: Final = PolicySpec()


def try_engines(
    able: Mapping[str, Advice], requests: Sequence[TraceRequest], promise: LatencyPromise, rate: float
) -> list[EnginesTried]:
    """Simulate each configuration with a few numbers of engines, from too few on, until all requests keep the promise.

    ``requests``: what the load is drawn from; ``rate``: so many arrive each second.
    """
    tried: list[EnginesTried] = []
    with working("simulating", len(able) * len(SHARES)) as shown:
        for index, (name, advice) in enumerate(able.items()):
            for num_engines in counts_around(engines_for(advice, rate)):
                tried.append(_try(name, advice, num_engines, requests, promise, rate))
                shown.advance()
                if tried[-1].attainment >= ALL:
                    break
            shown.at((index + 1) * len(SHARES))
    return tried


def counts_around(num_engines: int) -> list[int]:
    """Return the numbers of engines that are worth a look. None, where they are too many to simulate."""
    return sorted({max(1, round(share * num_engines)) for share in SHARES}) if num_engines <= MOST_ENGINES else []


def _try(
    name: str,
    advice: Advice,
    num_engines: int,
    requests: Sequence[TraceRequest],
    promise: LatencyPromise,
    rate: float,
) -> EnginesTried:
    source = stand_in(Path("advise"), {"": name}, requests, PromisedS(promise.ttft_s, promise.tpot_s))
    topology = source.topology({POOL: num_engines})
    profiles = {engine.id: advice.profile for engine in topology.engines}
    load = SyntheticLoad(requests, Arrivals(rate), _span_s(requests, promise, rate))
    summary = Experiment(topology, profiles, topology.services[0].name, load, POLICY).run()
    return EnginesTried(name, num_engines, num_engines * advice.profile.num_devices, summary.attainment)


def _span_s(requests: Sequence[TraceRequest], promise: LatencyPromise, rate: float) -> float:
    """So long that engines fill up and stay full, and no longer than that takes minutes."""
    mean = sum(request.num_output for request in requests) / len(requests)
    return min(LIVES * (promise.ttft_s + mean * promise.tpot_s), MOST_REQUESTS / rate)
