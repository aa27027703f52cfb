"""A100s, what models take of them, and services of three kinds.

SeaLLM's services are K-means clusters of ShareGPT and LongBench; here the lengths of a kind are lognormal, and rates
fall off as a power of the service's number.
"""

from collections.abc import Mapping
from random import Random

from engines.costs.presets import load_preset, preset_names
from mesh.topology.schema import Slo
from router.placement.observe.requirements import Catalogue, Cluster, Footprint
from router.placement.observe.traffic import Moments, ServiceTraffic, Traffic

KINDS = (  # moments of prompts and answers, in tokens
    (Moments(250, 300), Moments(250, 200)),  # conversations
    (Moments(2500, 1000), Moments(150, 80)),  # summaries
    (Moments(180, 100), Moments(70, 40)),  # code
)
SKEW = 0.8
LONGEST = 4096  # tokens of a request
DEVICE_GIB = 80
MEMORY_FRACTION = 0.9
DEVICES_PER_HOST = 8
SLO_FACTOR = 5.0  # times its execution time alone: SeaLLM's
SLO = Slo(5.0, 0.2)
SIZES = (1, 2, 4, 8)


def catalogue(models: Mapping[str, str], longest: Mapping[str, int] | None = None) -> Catalogue:
    """Return what each service takes, by the number of devices, from the models of services and their longest requests
    (by default `LONGEST`).
    """
    known, most = set(preset_names()), longest or {}
    footprints = {
        name: {
            size: _footprint(preset, most.get(name, LONGEST))
            for size in SIZES
            if (preset := f"a100-{model}-tp{size}") in known
        }
        for name, model in models.items()
    }
    return Catalogue(footprints, int(MEMORY_FRACTION * DEVICE_GIB * 2**30))


def _footprint(preset: str, longest: int) -> Footprint:
    profile = load_preset(preset)
    return Footprint(profile, profile.kv_bytes(longest))


def cluster(num_devices: int) -> Cluster:
    """Hosts of eight; fewer devices are one host."""
    per_host = min(DEVICES_PER_HOST, num_devices)
    return Cluster({f"node-{number}": per_host for number in range(num_devices // per_host)})


def traffic(names: list[str], rate: float, span_s: float, random: Random) -> Traffic:
    """``rate`` of all together. What each service is asked for is drawn once: searches all see the same."""
    order = random.sample(range(len(names)), len(names))
    weights = {name: (1 + place) ** -SKEW for name, place in zip(names, order, strict=True)}
    total, drawn = sum(weights.values()), {}
    for name in names:
        kind = random.choice(KINDS)
        asked = ServiceTraffic(rate * weights[name] / total, *kind)
        drawn[name] = asked.arrivals(span_s, random)
    return Traffic.recorded(drawn, span_s)
