"""The ways in which devices can be used that nobody uses now, and what services cost there."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engines.costs.named_profiles import load_profile, num_devices_of
from engines.costs.profiles import EngineProfile
from engines.costs.serving_systems import imitating
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.control import Role
from router.placement.change.obstacles import Obstacles
from router.placement.observe.requirements import Catalogue, Footprint
from router.placement.observe.running_mesh import rounded
from router.placement.search.plan import Group, Plan
from router.placement.search.span import DeviceSpan


@dataclass(frozen=True, slots=True)
class DeviceWays:
    """What a topology says of engines that span others. ``profiles``: what an engine of so many devices costs, whatever
    service it has. ``limits``: of weights, by engine. ``roles``: of engines that keep theirs. ``failed``: engines that
    did not start lately.
    """

    spans: tuple[DeviceSpan, ...] = ()
    profiles: Mapping[int, EngineProfile] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, topology: Topology) -> "DeviceWays":
        engines = {spec.id: spec for spec in topology.engines}
        spans = tuple(
            DeviceSpan(_group(spec), tuple(_group(engines[name]) for name in spec.spans))
            for spec in engines.values()
            if spec.spans
        )
        specs = [engines[group.id] for span in spans for group in span.groups]
        profiles = {num_devices_of(spec): _profile(spec) for spec in specs if spec.profile is not None}
        limits = {spec.id: spec.weight_memory_bytes for spec in specs if spec.weight_memory_bytes is not None}
        roles = {spec.id: spec.role for spec in specs if spec.scheduling.is_static}
        return cls(spans, profiles, limits, roles)

    def usable(self, present: Plan, catalogue: Catalogue) -> tuple[DeviceSpan, ...]:
        """Return the spans that plans may use: one way of each runs whole, somebody knows what the other one costs, and
        none of its engines failed to start lately.
        """
        return tuple(
            span
            for span in self.spans
            if span.is_whole(present) and not self.failed & span.names and not unknown(span, catalogue)
        )

    def complete(self, catalogue: Catalogue, longest: Mapping[str, int]) -> Catalogue:
        """Return the catalogue with what services cost on as many devices as no engine has had them on."""
        footprints = {name: dict(by_size) for name, by_size in catalogue.footprints.items()}
        for num_devices, profile in self.profiles.items():
            alone = replace(profile, weight_bytes=0)  # which are counted apart on running engines
            for name, by_size in footprints.items():
                by_size.setdefault(num_devices, Footprint(alone, alone.kv_bytes(longest[name])))
        return replace(catalogue, footprints=footprints)

    def obstacles(self, obstacles: Obstacles, present: Plan, spans: Sequence[DeviceSpan]) -> Obstacles:
        """Return them with those of engines that do not run: what these hold when they start, and the roles
        that they keep.
        """
        here = {group.id for group in present.groups}
        absent = [group for span in spans for group in span.groups if group.id not in here]
        limits = {group.id: self.limits[group.id] for group in absent if group.id in self.limits}
        roles = {group.id: self.roles[group.id] for group in absent if group.id in self.roles}
        return replace(
            obstacles,
            limits={**obstacles.limits, **limits},
            roles={**obstacles.roles, **roles},
            starts={group.id: group.services for group in absent},
        )


def unknown(span: DeviceSpan, catalogue: Catalogue) -> list[str]:
    """Return the engines of which nobody knows what a service costs there."""
    sizes: Collection[int] = catalogue.sizes()
    return [group.id for group in span.groups if group.num_devices not in sizes]


def _profile(spec: EngineSpec) -> EngineProfile:
    assert spec.profile is not None, "it names one"
    return imitating(spec, load_profile(spec.profile))


def _group(spec: EngineSpec) -> Group:
    kv_bytes = None if spec.profile is None else rounded(_profile(spec).kv_memory_bytes)
    return Group(spec.id, spec.host, 0, num_devices_of(spec), tuple(sorted(spec.services)), spec.role, kv_bytes)
