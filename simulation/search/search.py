"""Carries a search out: its rounds become jobs, here, in other processes or on Ray."""

from collections.abc import Sequence

from mesh.jobs.runner import JobPlace, running
from mesh.show.progress import ShownProgress
from simulation.search.candidates import SearchCandidate
from simulation.search.evidence import SampleResult
from simulation.search.halving import Halving, SearchEffort
from simulation.search.sample_runs import SampleRunner, SampleRuns


def search_topologies(
    candidates: Sequence[SearchCandidate],
    effort: SearchEffort,
    runner: SampleRunner,
    place: JobPlace,
    shown: ShownProgress,
) -> Halving:
    """Simulate until the cheapest candidate is known, or no more samples are to be drawn."""
    halving = Halving([candidate.price for candidate in candidates], effort)
    with running(runner, place) as workers:
        while (asked := halving.next_round()) is not None:
            jobs = [SampleRuns(candidates[one], asked.num_requests, asked.seeds) for one in asked.candidates]
            shown.stage(f"{len(jobs)} topologies, {len(asked.seeds)} samples of {asked.num_requests} requests")
            shown.at(0, total=len(jobs))
            results: dict[int, list[SampleResult]] = {}
            for index, result in workers.run(jobs):
                results[asked.candidates[index]] = result
                shown.advance()
            halving.tell(asked, results)
    return halving
