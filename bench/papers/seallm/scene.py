"""What is asked of the cluster: services with their models, lengths and sources, and the requests of one run.

Services are clusters of the lengths of prompts and answers, each with a model by lot (SeaLLM, section 6.1). When
requests come is told by the functions of a trace (Azure Functions: ``arrival_s``, ``function``), dealt out to services.
"""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise, takewhile
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from bench.papers.seallm import devices
from bench.papers.seallm.lengths import Spread, clusters
from engines.costs.linear import serving_s
from engines.costs.profiles import EngineProfile
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Arrival, Traffic
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.rows import TraceError, csv_rows, open_text
from simulation.loads.trace_request import TraceRequest

MODELS = ("llama2-7b", "opt-6.7b", "llama2-13b", "llama2-70b")
NUM_SERVICES, NUM_DEVICES = 8, 32  # the paper's
SAMPLE = 1000  # requests of each data set that are clustered
NUM_WINDOWS = 12
WARM_UP = 50  # requests of a source before its first


@dataclass(frozen=True, slots=True)
class Inputs:
    """A file of arrivals, how lengths spread, and the number of the lot that gives clusters their models."""

    arrivals: Path
    spread: Spread = field(default_factory=Spread)
    assignment: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A load on a cluster, to be served for ``span_s``.

    ``consecutive``: so many requests of the same service come one after the other. ``noise``: the standard deviation
    of what answers are longer or shorter by than profiles know, in times of their length.
    """

    rate: float  # requests a second, of all services
    span_s: float
    num_devices: int = NUM_DEVICES
    seed: int = 0
    consecutive: int = 1
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Source:
    """A function, with its rate in each of a few windows, in any unit, and the coefficient of variation of its gaps.

    Its requests are a renewal process with gamma gaps in the time that its rate stretches and squeezes. The windows
    span the whole run, however long it is, so a pattern is played at any rate and over any time.
    """

    rates: tuple[float, ...]
    cv: float

    @property
    def weight(self) -> float:
        return fmean(self.rates)

    def times(self, rate: float, span_s: float, random: Random) -> Iterator[float]:
        """Yield ascending times before ``span_s``, ``rate`` a second on average."""
        bounds = [0.0, *accumulate(self.rates)]
        shape, window_s = 1 / self.cv**2, span_s / len(self.rates)
        unit = bounds[-1] / (rate * span_s)  # of the windows' units, for a request
        place = -WARM_UP * unit  # so that the first gap is one like others
        while place < bounds[-1]:
            if place >= 0:
                index = bisect_right(bounds, place) - 1
                yield (index + (place - bounds[index]) / self.rates[index]) * window_s
            place += unit * random.gammavariate(shape, 1 / shape)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    model: str
    lengths: Sequence[TraceRequest]
    sources: Sequence[Source]
    mean_s: float  # execution time of a request on the smallest group that can hold the service

    @property
    def weight(self) -> float:
        return sum(source.weight for source in self.sources)

    @property
    def longest(self) -> int:
        """Tokens of a request."""
        return max(request.num_input + request.num_output for request in self.lengths)


@dataclass(frozen=True, slots=True)
class World:
    """All services and what they cost."""

    services: Mapping[str, Service]
    catalogue: Catalogue

    def alone_s(self, request: TraceRequest) -> float:
        """Return the execution time of a request on the smallest group that can hold its service."""
        assert request.service is not None, "every request here names its service"
        return _alone_s(_least(self.catalogue, request.service), request)

    def requests(self, scene: Scene) -> list[TraceRequest]:
        """Draw the requests of a run, in order of arrival."""
        arrivals = self._arrivals(scene, Random(f"{scene.seed}/requests"))
        requests = in_runs(sorted(arrivals, key=lambda request: request.at_s), scene.consecutive)
        longest = {service.name: service.longest for service in self.services.values()}
        return noisy(requests, scene.noise, longest, Random(f"{scene.seed}/noise"))

    def history(self, scene: Scene, seen_s: float, span_s: float) -> Traffic:
        """Draw what plans are made for: its rates and lengths are those of ``seen_s`` of the same sources, drawn anew.

        Arrivals over ``span_s`` are Poisson, as `mesh plan search` draws them: so few seconds of the sources themselves
        would have other rates than the time to come.
        """
        return self._like(Scene(scene.rate, seen_s, seed=-1 - scene.seed), span_s, Random(f"{scene.seed}/history"))

    def foreseen(self, scene: Scene, span_s: float, until_s: float = inf) -> Traffic:
        """Draw the same for somebody who knows the rates and lengths of the run itself, or of what comes before
        ``until_s``.
        """
        return self._like(scene, span_s, Random(f"{scene.seed}/foreseen"), until_s)

    def _like(self, scene: Scene, span_s: float, random: Random, until_s: float = inf) -> Traffic:
        seen = defaultdict[str, list[TraceRequest]](list)
        for request in takewhile(lambda request: request.at_s < until_s, self.requests(scene)):
            assert request.service is not None, "every request here names its service"
            seen[request.service].append(request)
        drawn: dict[str, list[Arrival]] = {name: [] for name in self.services}
        seen_s = min(scene.span_s, until_s)
        for name, requests in seen.items():
            for at_s in takewhile(lambda at_s: at_s < span_s, Arrivals(len(requests) / seen_s).times(random)):
                one = random.choice(requests)
                drawn[name].append(Arrival(at_s, one.num_input, one.num_output))
        return Traffic.recorded(drawn, span_s)

    def _arrivals(self, scene: Scene, random: Random) -> Iterator[TraceRequest]:
        total = sum(service.weight for service in self.services.values())
        came = [
            (at_s, service)
            for service in self.services.values()
            for source in service.sources
            for at_s in source.times(scene.rate * source.weight / total, scene.span_s, random)
        ]
        for at_s, service in came:
            yield replace(random.choice(service.lengths), at_s=at_s, service=service.name)


@cache
def make_world(inputs: Inputs) -> World:
    """Read what is asked. Raise `TraceError` if a file cannot be read."""
    found = clusters(inputs.spread.requests(SAMPLE, Random("lengths")), NUM_SERVICES, Random("clusters"))
    random = Random(f"{inputs.assignment}/services")
    models = [MODELS[number % len(MODELS)] for number in range(len(found))]
    random.shuffle(models)
    random.shuffle(found)
    names = [f"s{number}" for number in range(len(found))]
    longest = [max(request.num_input + request.num_output for request in cluster) for cluster in found]
    catalogue = devices.catalogue(dict(zip(names, models, strict=True)), dict(zip(names, longest, strict=True)))
    sources = dealt(read_sources(inputs.arrivals), len(found))
    services = {
        name: Service(name, model, lengths, own, fmean(_alone_s(_least(catalogue, name), one) for one in lengths))
        for name, model, lengths, own in zip(names, models, found, sources, strict=True)
    }
    return World(services, catalogue)


def _least(catalogue: Catalogue, service: str) -> EngineProfile:
    num_devices = catalogue.least_devices(service, devices.DEVICES_PER_HOST)
    assert num_devices is not None, f"{service} fits on no node"
    return catalogue.profile(service, num_devices)


def _alone_s(profile: EngineProfile, request: TraceRequest) -> float:
    return serving_s(profile.prefill, profile.decode, 1, request.num_input, request.num_output - 1)


# --- arrivals ---------------------------------------------------------------------------------------------------------


def read_sources(path: Path) -> list[Source]:
    """Read the functions of a file, the busiest first. Raise `TraceError` if they cannot be read."""
    try:
        with open_text(path) as file:
            times = sorted((row.seconds("arrival_s"), str(row.get("function"))) for row in csv_rows(path, file))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
    if len(times) < 2 or times[0][0] == times[-1][0]:
        raise TraceError(f"{path}: all comes at once; want arrivals at several times")
    first, last = times[0][0], times[-1][0]
    counts: dict[str, list[float]] = defaultdict(lambda: [0.0] * NUM_WINDOWS)
    for at_s, function in times:
        counts[function][min(int((at_s - first) / (last - first) * NUM_WINDOWS), NUM_WINDOWS - 1)] += 1
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(times)]
    cv = max(1.0, pstdev(gaps) / fmean(gaps))
    return sorted((Source(tuple(count), cv) for count in counts.values()), key=lambda source: -source.weight)


def in_runs(requests: Sequence[TraceRequest], length: int) -> list[TraceRequest]:
    """Let ``length`` requests of a service come one after the other, at the same times as before: whoever would come
    next brings those with it that its service would send later.
    """
    times = [request.at_s for request in requests]
    waiting: dict[str | None, deque[TraceRequest]] = defaultdict(deque)
    for request in requests:
        waiting[request.service].append(request)
    ordered: list[TraceRequest] = []
    taken: Counter[str | None] = Counter()
    for request in requests:
        taken[request.service] -= 1
        if taken[request.service] < 0:  # it was not brought along by an earlier one
            own = waiting[request.service]
            brought = [own.popleft() for _ in range(min(length, len(own)))]
            taken[request.service] += len(brought)
            ordered += brought
    return [replace(request, at_s=at_s) for request, at_s in zip(ordered, times, strict=True)]


def noisy(
    requests: Sequence[TraceRequest], deviation: float, longest: Mapping[str, int], random: Random
) -> list[TraceRequest]:
    """Make each answer longer or shorter by a Gaussian part, of mean 0 and ``deviation`` times its length. It has a
    token at least, and no request has more than the ``longest`` of its service, which engines have room for.
    """

    def answer(request: TraceRequest) -> int:
        assert request.service is not None, "every request here names its service"
        most = longest[request.service] - request.num_input
        return min(max(1, round(request.num_output * (1 + random.gauss(0.0, deviation)))), most)

    return [replace(request, num_output=answer(request)) for request in requests] if deviation else list(requests)


def dealt(sources: Sequence[Source], num_services: int) -> list[list[Source]]:
    """Deal sources to services in turn, as the paper does. Raise `TraceError` if they are too few."""
    if len(sources) < num_services:
        raise TraceError(f"{len(sources)} sources of requests are too few for {num_services} services")
    return [list(sources[number::num_services]) for number in range(num_services)]
