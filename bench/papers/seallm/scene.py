"""What is asked of the cluster: services with their models, lengths and sources, and the requests of one run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from random import Random
from statistics import fmean

from bench.papers.seallm.arrivals import Source, dealt, read_sources
from bench.papers.seallm.lengths import clusters, sample_of
from bench.placement import setting
from engines.costs.linear import serving_s
from engines.costs.profiles import EngineProfile
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Arrival, Traffic
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.trace_request import TraceRequest

MODELS = ("llama2-7b", "opt-6.7b", "llama2-13b", "llama2-70b")
NUM_SERVICES, NUM_DEVICES = 8, 32  # the paper's
ASSIGNMENT = "3/services"  # the seed of which cluster gets which model


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files: lengths of chats, summaries and code, and arrivals."""

    lengths: tuple[Path, ...]
    arrivals: Path


@dataclass(frozen=True, slots=True)
class Scene:
    """A load on a cluster, to be served for ``span_s``."""

    rate: float  # requests a second, of all services
    span_s: float
    num_devices: int = NUM_DEVICES
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
        return sorted(self._arrivals(scene, Random(f"{scene.seed}/requests")), key=lambda request: request.at_s)

    def history(self, scene: Scene, seen_s: float, span_s: float) -> Traffic:
        """Draw what plans are made for: its rates and lengths are those of ``seen_s`` of the same sources, drawn anew.

        Arrivals over ``span_s`` are Poisson, as `mesh plan search` draws them: so few seconds of the sources themselves
        would have other rates than the time to come.
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
    random = Random(ASSIGNMENT)
    requests = [request for path in inputs.lengths for request in sample_of(path, random)]
    found = clusters(requests, NUM_SERVICES, random)
    models = [MODELS[number % len(MODELS)] for number in range(len(found))]
    random.shuffle(models)
    random.shuffle(found)
    names = [f"s{number}" for number in range(len(found))]
    catalogue = setting.catalogue(dict(zip(names, models, strict=True)))
    sources = dealt(read_sources(inputs.arrivals), len(found))
    services = {
        name: Service(name, model, lengths, own, _mean_s(catalogue, name, lengths))
        for name, model, lengths, own in zip(names, models, found, sources, strict=True)
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
