"""Simulates one candidate on samples, as a job that any process can do."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from simulation.command.profiles import profiles_of
from simulation.experiment import Experiment
from simulation.loads.services import assign_services
from simulation.loads.sources import TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.search.candidates import SearchCandidate
from simulation.search.documents import read_document, write_document
from simulation.search.evidence import SampleResult, weigh_records
from simulation.search.samples import draw_sample

WARM_UP: Final = 0.2  # of a sample's requests, which find the mesh emptier than it will be, and are not counted
PLACE: Final = Path("candidate.toml")  # named by errors


@dataclass(frozen=True, slots=True)
class SampleRuns:
    """Simulations of one candidate. Each seed decides a sample, and all that is random in the mesh."""

    candidate: SearchCandidate
    num_requests: int  # of a sample
    seeds: Sequence[int]


@dataclass(frozen=True, slots=True)
class SampleRunner:
    """The work of jobs. ``requests``: the recording; ``services``: their promises; ``goal``: the share to be kept."""

    requests: Sequence[TraceRequest]
    services: Mapping[str, Mapping[str, Any]]
    goal: float

    def __call__(self, runs: SampleRuns) -> list[SampleResult]:
        """Return a result for each seed."""
        topology = read_document(write_document(runs.candidate, self.services, ()), PLACE)
        experiment = Experiment(
            topology, profiles_of(topology, {}), topology.services[0].name, TraceLoad(()), topology.policy
        )
        return [self._run(experiment, runs.num_requests, seed) for seed in runs.seeds]

    def _run(self, experiment: Experiment, num_requests: int, seed: int) -> SampleResult:
        started = time.process_time()
        sample = draw_sample(self.requests, num_requests, seed)
        load = TraceLoad(assign_services(sample, experiment.topology, None))
        records = replace(experiment, load=load, seed=seed).records()
        first_s = sample[int(WARM_UP * len(sample))].at_s
        counted = [one for one in records if one.arrived_s >= first_s]
        return weigh_records(counted, self.goal, time.process_time() - started)
