"""Small clusters and services whose plans are scored by arithmetic, in no time."""

from collections.abc import Sequence
from random import Random

from engines.costs.profiles import EngineProfile
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost
from router.placement.observe.requirements import GIB, Catalogue, Cluster, Footprint
from router.placement.observe.traffic import Moments, ServiceTraffic, Traffic
from router.placement.search.plan import Plan
from router.placement.search.score import Score, ServiceScore

DEVICE_BYTES = 72 * GIB
SPAN_S = 100.0


def catalogue(weights_gib: dict[str, float], sizes: Sequence[int] = (1, 2, 4, 8), max_sharing: int = 2) -> Catalogue:
    footprints = {name: {size: footprint(name, gib, size) for size in sizes} for name, gib in weights_gib.items()}
    return Catalogue(footprints, DEVICE_BYTES, max_sharing)


def footprint(name: str, weights_gib: float, size: int) -> Footprint:
    """A longest request takes 1 GiB; costs do not matter here."""
    costs = (PrefillCost(0.0, 1e-4), DecodeCost(1e-2, 0.0, 0.0))
    weight_bytes = int(weights_gib * GIB)
    profile = EngineProfile(f"{name}-{size}", *costs, 1, 1, "made up", num_devices=size, weight_bytes=weight_bytes)
    return Footprint(profile, GIB)


def traffic(rates: dict[str, float]) -> Traffic:
    lengths = Moments(100.0, 50.0)
    return Traffic(SPAN_S, {name: ServiceTraffic(rate, lengths, lengths) for name, rate in rates.items()})


def cluster(*devices: int) -> Cluster:
    return Cluster({f"node-{number}": size for number, size in enumerate(devices)})


def random_world(seed: int, most_devices: int = 8) -> tuple[Cluster, Catalogue, Traffic]:
    random = Random(seed)
    names = [f"s{number}" for number in range(random.randint(1, 5))]
    weights = {name: random.choice((1.0, 13.0, 26.0, 60.0, 100.0, 130.0)) for name in names}
    hosts = cluster(*(random.choice((2, 4, most_devices)) for _ in range(random.randint(1, 2))))
    rates = {name: random.uniform(0.1, 20.0) for name in names}
    return hosts, catalogue(weights, max_sharing=random.choice((1, 2, 3))), traffic(rates)


def assert_in_memory(plan: Plan, services: Catalogue) -> None:
    """Added up here, not by the catalogue."""
    for group in plan.groups:
        held = [services.footprints[name][group.num_devices] for name in group.services]
        assert sum(one.profile.weight_bytes + one.kv_bytes for one in held) <= group.num_devices * DEVICE_BYTES
        assert len(held) <= services.max_sharing


class Fluid:
    """A device serves ``capacity`` requests a second, whatever they are; what is more is late.

    Engines for one phase serve ``phase_gain`` times as many. Evaluations in parts and exact ones are the same.
    """

    def __init__(self, asked: Traffic, capacity: float = 5.0, phase_gain: float = 1.0, promise: float = 0.0) -> None:
        self.num_plans = 0
        self._asked = asked
        self._capacity = capacity
        self._phase_gain = phase_gain
        self._promise = promise

    def __call__(self, plans: Sequence[Plan]) -> list[Score]:
        self.num_plans += len(plans)
        return [self._score(plan) for plan in plans]

    exact = __call__

    def ideal(self) -> Score:
        rates = {name: service.rate * SPAN_S for name, service in self._asked.services.items()}
        return Score({name: ServiceScore(num, 0.0, num, self._promise) for name, num in rates.items()})

    def _score(self, plan: Plan) -> Score:
        load = {group.id: 0.0 for group in plan.groups}
        for name, service in self._asked.services.items():
            groups = plan.groups_of(name)
            for group in groups:
                share = group.num_devices / sum(other.num_devices for other in groups)
                gain = 1.0 if group.role is Role.MULTIPLEX else self._phase_gain
                load[group.id] += share * service.rate / (self._capacity * group.num_devices * gain)
        return Score({name: self._service(name, plan, load) for name in self._asked.services})

    def _service(self, name: str, plan: Plan, load: dict[str, float]) -> ServiceScore:
        groups, num = plan.groups_of(name), self._asked.services[name].rate * SPAN_S
        if not groups:
            return ServiceScore(num, num, 0.0, self._promise)
        devices = sum(group.num_devices for group in groups)
        shares = [(group.num_devices / devices, load[group.id]) for group in groups]
        served = sum(share / max(1.0, busy) for share, busy in shares)
        latency = sum(share * (1 + busy) for share, busy in shares)
        return ServiceScore(num, num * (1 - served), num * latency, self._promise)


KINDS = (  # moments of prompts and answers, in tokens
    (Moments(250, 300), Moments(250, 200)),  # conversations
    (Moments(2500, 1000), Moments(150, 80)),  # summaries
    (Moments(180, 100), Moments(70, 40)),  # code
)
SKEW = 0.8  # of rates, which fall off as a power of the service's number


def made_up_traffic(names: list[str], rate: float, span_s: float, random: Random) -> Traffic:
    """``rate`` of all together. What each service is asked for is drawn once: searches all see the same."""
    order = random.sample(range(len(names)), len(names))
    weights = {name: (1 + place) ** -SKEW for name, place in zip(names, order, strict=True)}
    total, drawn = sum(weights.values()), {}
    for name in names:
        kind = random.choice(KINDS)
        asked = ServiceTraffic(rate * weights[name] / total, *kind)
        drawn[name] = asked.arrivals(span_s, random)
    return Traffic.recorded(drawn, span_s)
