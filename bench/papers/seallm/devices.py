"""A100s, and what models take of them."""

from collections.abc import Mapping

from engines.costs.presets import load_preset, preset_names
from mesh.topology.schema import Slo
from router.placement.observe.requirements import Catalogue, Cluster, Footprint

LONGEST = 4096  # tokens of a request, where a service does not say
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
