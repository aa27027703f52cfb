"""What a run does, while it does it, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.load.generator.crew import Crew
from bench.load.results.goodput import Promises
from mesh.show.progress import ShownProgress, working


@contextmanager
def live(
    promises: Promises, total: int | None, span_s: float | None, *, is_shown: bool = True
) -> Iterator[Callable[[Crew], None]]:
    """Requests a second, in flight, failed, attainment so far, of ``total`` requests, or for ``span_s``."""
    with working("requests", total or span_s, is_shown=is_shown) as shown:
        yield Heard(promises, shown, counts_requests=bool(total)).hear


class Heard:
    """Counts what the crew tells."""

    def __init__(self, promises: Promises, shown: ShownProgress, *, counts_requests: bool) -> None:
        self._promises, self._shown, self._counts_requests = promises, shown, counts_requests
        self._num_seen, self._num_good, self._num_failed = 0, 0, 0

    def hear(self, crew: Crew) -> None:
        for outcome in crew.outcomes[self._num_seen :]:
            self._num_good += self._promises.is_kept(outcome)
            self._num_failed += not outcome.is_finished
        self._num_seen = len(crew.outcomes)
        self._shown.at(self._num_seen if self._counts_requests else crew.elapsed_s, self.words(crew))

    def words(self, crew: Crew) -> str:
        rate = self._num_seen / crew.elapsed_s if crew.elapsed_s > 0 else 0.0
        parts = [f"{self._num_seen} done", f"{crew.num_in_flight} in flight", f"{rate:.2f}/s"]
        if self._num_failed:
            parts.append(f"{self._num_failed} failed")
        if self._num_seen and not self._promises.is_empty:
            parts.append(f"{self._num_good / self._num_seen:.1%} in SLO")
        return ", ".join(parts)
