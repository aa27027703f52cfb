"""A placement search that knows each request of the time to come: what no daemon that looks back can bring."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

from router.placement.observe.traffic import Arrival, Traffic
from router.placement.search.question import Question
from simulation.loads.trace_request import TraceRequest
from simulation.placement.daemon import Search, SearchResult


@dataclass(frozen=True, slots=True)
class Certain(Question):
    """``asked`` has the very requests that come. No sample tells more, and nothing of it is chance."""

    def drawn(self, least: int = 0) -> Traffic:
        return self.asked.with_short_queues()

    def samples(self) -> Iterator[Traffic]:
        return iter((self.drawn(),))


@dataclass(frozen=True, slots=True)
class Foreseeing:
    """Searches for the ``requests`` of the next ``horizon_s``, in no time. ``now`` tells the time of the simulation."""

    search: Search
    requests: Sequence[TraceRequest]
    horizon_s: float
    now: Callable[[], float]

    def __call__(self, question: Question) -> SearchResult:
        begins_s, coming = self.now(), defaultdict[str, list[Arrival]](list)
        for one in self.requests:
            assert one.service is not None, "every request here names its service"
            if begins_s <= one.at_s < begins_s + self.horizon_s:
                coming[one.service].append(Arrival(one.at_s - begins_s, one.num_input, one.num_output))
        waiting = {name: service.num_waiting for name, service in question.asked.services.items()}
        known = {name: coming[name] for name in waiting}
        asked = Traffic.recorded(known, self.horizon_s).with_waiting(waiting)
        values = {field.name: getattr(question, field.name) for field in fields(question)}
        return self.search(Certain(**{**values, "asked": asked, "risk": 1.0}))._replace(elapsed_s=0.0)
