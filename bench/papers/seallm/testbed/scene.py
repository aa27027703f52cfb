"""What is asked of the cluster: services with their models, lengths and sources, and the requests of one run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from random import Random
from statistics import fmean

from bench.papers.seallm.testbed.arrivals import Source, dealt, drawn_sources, read_sources
from bench.papers.seallm.testbed.lengths import Files, all_kinds, clusters
from bench.placement import setting
from engines.costs.linear import serving_s
from engines.costs.profiles import EngineProfile
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Arrival, Traffic
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest

MODELS = ("llama2-7b", "opt-6.7b", "llama2-13b", "llama2-70b")
NUM_DEVICES = 32  # the paper's
LONGEST_ANSWER = 8192  # tokens, where lengths are disturbed


@dataclass(frozen=True, slots=True)
class Inputs:
    """``arrivals``: a file of sources; None: they are drawn. ``assignment``: seed of which cluster gets which model."""

    lengths: Files = field(default_factory=Files)
    arrivals: Path | None = None
    num_services: int = 8
    assignment: int = 3


@dataclass(frozen=True, slots=True)
class Scene:
    """A load on a cluster, to be served for ``span_s``.

    ``in_a_row``: so many consecutive requests are of one service (figure 12); 0: sources send when they do.
    ``error``: deviation of an answer's length, over that length (figure 13).
    """

    rate: float  # requests a second, of all services
    span_s: float
    num_devices: int = NUM_DEVICES
    in_a_row: int = 0
    error: float = 0.0
    seed: int = 0


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
        random = Random(f"{scene.seed}/requests")
        requests = sorted(self._arrivals(scene, random), key=lambda request: request.at_s)
        return [_disturbed(request, scene.error, random) for request in requests] if scene.error else requests

    def history(self, scene: Scene, seen_s: float, span_s: float) -> Traffic:
        """Draw what plans are made for: its rates and lengths are those of ``seen_s`` of the same sources, drawn anew.

        Arrivals over ``span_s`` are Poisson, as `mesh plan search` draws them: so few seconds of the sources themselves
        would have other rates than the time to come. What a scene has besides its rate is not foreseen.
        """
        random, seen = Random(f"{scene.seed}/history"), defaultdict[str, list[TraceRequest]](list)
        for request in self.requests(Scene(scene.rate, seen_s, seed=-1 - scene.seed)):
            assert request.service is not None, "every request here names its service"
            seen[request.service].append(request)
        drawn: dict[str, list[Arrival]] = {name: [] for name in self.services}
        for name, requests in seen.items():
            for at_s in takewhile(lambda at_s: at_s < span_s, Arrivals(len(requests) / seen_s).times(random)):
                one = random.choice(requests)
                drawn[name].append(Arrival(at_s, one.num_input, one.num_output))
        return Traffic.recorded(drawn, span_s)

    def _arrivals(self, scene: Scene, random: Random) -> list[TraceRequest]:
        total = sum(service.weight for service in self.services.values())
        came = [
            (at_s, service)
            for service in self.services.values()
            for source in service.sources
            for at_s in source.times(scene.rate * source.weight / total, scene.span_s, random)
        ]
        if scene.in_a_row:
            came = self._in_a_row(sorted(at_s for at_s, _ in came), scene.in_a_row, random)
        return [replace(random.choice(service.lengths), at_s=at_s, service=service.name) for at_s, service in came]

    def _in_a_row(self, times: Sequence[float], count: int, random: Random) -> list[tuple[float, Service]]:
        """Give the same arrivals to services drawn by their weights, so many of one after the other."""
        services = list(self.services.values())
        num_rows = -(-len(times) // count)
        rows = random.choices(services, [service.weight for service in services], k=num_rows)
        return [(at_s, rows[index // count]) for index, at_s in enumerate(times)]


def _disturbed(request: TraceRequest, error: float, random: Random) -> TraceRequest:
    num_output = round(request.num_output * (1 + random.normalvariate(0.0, error)))
    return replace(request, num_output=min(max(1, num_output), LONGEST_ANSWER))


@cache
def make_world(inputs: Inputs) -> World:
    """Read or draw what is asked. Raise `TraceError` if a file cannot be read."""
    random = Random(f"{inputs.assignment}/services")
    found = clusters(all_kinds(inputs.lengths, random), inputs.num_services, random)
    sources = drawn_sources(random) if inputs.arrivals is None else read_sources(inputs.arrivals)
    models = [MODELS[number % len(MODELS)] for number in range(len(found))]
    random.shuffle(models)
    random.shuffle(found)
    names = [f"s{number}" for number in range(len(found))]
    catalogue = setting.catalogue(dict(zip(names, models, strict=True)))
    services = {
        name: Service(name, model, lengths, own, _mean_s(catalogue, name, lengths))
        for name, model, lengths, own in zip(names, models, found, dealt(sources, len(found)), strict=True)
    }
    return World(services, catalogue)


def _mean_s(catalogue: Catalogue, service: str, lengths: Sequence[TraceRequest]) -> float:
    profile = _least(catalogue, service)
    return fmean(_alone_s(profile, request) for request in lengths)


def _least(catalogue: Catalogue, service: str) -> EngineProfile:
    num_devices = catalogue.least_devices(service, setting.DEVICES_PER_HOST)
    assert num_devices is not None, f"{service} fits on no node"
    return catalogue.profile(service, num_devices)


def _alone_s(profile: EngineProfile, request: TraceRequest) -> float:
    return serving_s(profile.prefill, profile.decode, 1, request.num_input, request.num_output - 1)
