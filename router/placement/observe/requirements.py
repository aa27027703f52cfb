"""Checks whether a group of devices has the memory that services need."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from engines.costs.profiles import EngineProfile
from mesh.errors import UserError
from router.placement.search.plan import Group
from router.placement.search.span import DeviceSpan

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Footprint:
    """A service on groups of one size: what it costs there, and the KV that it must have there to be served at all."""

    profile: EngineProfile
    kv_bytes: int  # of its longest request

    @property
    def num_bytes(self) -> int:
        return self.profile.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices by host, to be cut into groups; or ``engines`` that are there, and stay as they are but for ``spans``.
    All are alike.
    """

    hosts: Mapping[str, int]
    engines: tuple[Group, ...] = ()
    spans: tuple[DeviceSpan, ...] = ()

    @property
    def largest_group(self) -> int:
        """Devices that one group can have."""
        engines = [*self.engines, *(span.spanning for span in self.spans)]
        sizes = [group.num_devices for group in engines] or self.hosts.values()
        return max(sizes, default=0)


@dataclass(frozen=True, slots=True)
class Measure:
    """How amounts of memory are told to people, and of what they are."""

    unit: str = "GiB"
    unit_bytes: float = GIB
    what: str = "weights and its longest request"

    def say(self, num_bytes: int) -> str:
        return f"{num_bytes / self.unit_bytes:.1f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What services need of devices. ``footprints`` by service and number of devices; ``device_bytes`` of one device
    are for weights and KV.

    ``max_sharing``: services on one group. SeaLLM shares two at most (section 6.1). Where memory for weights is
    apart from that for KV, ``weights`` of services are held against ``weight_limits`` by number of devices.
    """

    footprints: Mapping[str, Mapping[int, Footprint]]
    device_bytes: int
    max_sharing: int = 2
    measure: Measure = Measure()
    weights: Mapping[str, int] = field(default_factory=dict)
    weight_limits: Mapping[int, int] = field(default_factory=dict)

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(sorted(self.footprints))

    def profile(self, service: str, num_devices: int) -> EngineProfile:
        return self.footprints[service][num_devices].profile

    def sizes(self) -> list[int]:
        """Numbers of devices that some service has a profile for."""
        return sorted({size for by_size in self.footprints.values() for size in by_size})

    def fits(self, services: Collection[str], num_devices: int, kv_bytes: int | None = None) -> bool:
        """Return whether a group of that size can hold all of them. ``kv_bytes``: see `Group`."""
        return (
            len(services) <= self.max_sharing
            and all(num_devices in self.footprints[name] for name in services)
            and self.missing_bytes(services, num_devices, kv_bytes) <= 0
            and self._holds_weights(services, num_devices)
        )

    def _holds_weights(self, services: Collection[str], num_devices: int) -> bool:
        limit = self.weight_limits.get(num_devices)
        return limit is None or sum(self.weights.get(name, 0) for name in services) <= limit

    def missing_bytes(self, services: Iterable[str], num_devices: int, kv_bytes: int | None = None) -> int:
        """Return by how much they are too large for a group of that size; negative: what they leave."""
        needed = sum(self.footprints[name][num_devices].num_bytes for name in services)
        return needed - (num_devices * self.device_bytes if kv_bytes is None else kv_bytes)

    def least_devices(self, service: str, most: int) -> int | None:
        """The smallest group, of ``most`` devices at most, that can hold the service alone; None: there is none."""
        sizes = [size for size in sorted(self.footprints[service]) if size <= most]
        return next((size for size in sizes if self.fits([service], size)), None)

    def why_not(self, service: str, cluster: Cluster) -> str | None:
        """Return why no group of the cluster could ever hold the service, and by how much it is too large; None: one
        could.
        """
        most, by_size = cluster.largest_group, self.footprints[service]
        if self.least_devices(service, most) is not None:
            return None
        sizes = [size for size in by_size if size <= most]
        if not sizes:
            wanted = ", ".join(map(str, sorted(by_size)))
            return f"{service}: has profiles for {wanted} devices; the largest group has {most}"
        size = max(sizes)
        missing = self.missing_bytes([service], size)
        needed = by_size[size].num_bytes
        say = self.measure.say
        return (
            f"{service}: {self.measure.what} take {say(needed)}; the largest group that it has a profile for, "
            f"{size} devices, holds {say(size * self.device_bytes)}: {say(missing)} too little"
        )


class PlacementError(UserError):
    """Services that fit nowhere, one line each."""


def check_fits(catalogue: Catalogue, cluster: Cluster) -> None:
    """Raise `PlacementError` naming each service that no group of the cluster can hold, and by how much."""
    faults = [why for name in catalogue.services if (why := catalogue.why_not(name, cluster)) is not None]
    if faults:
        raise PlacementError("\n".join(faults))
