"""Describes where services run: a numbered plan of groups of devices."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mesh.wire.control import Role


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one host, from ``first`` on, that work as one engine and hold the weights of ``services`` (sorted).

    ``num_devices`` is the parallelism; with a service's name it also says what that costs: `Catalogue.profile`.
    ``kv_bytes``: what an engine that is there has for KV, whatever it holds; None: what its devices' weights leave.
    """

    id: str
    host: str
    first: int
    num_devices: int
    services: tuple[str, ...] = ()
    role: Role = Role.MULTIPLEX
    kv_bytes: int | None = None

    @classmethod
    def of_devices(cls, host: str, first: int, num_devices: int) -> "Group":
        """Named after its devices: ``node-0/4-7``."""
        last = first + num_devices - 1
        return cls(f"{host}/{first}-{last}" if num_devices > 1 else f"{host}/{first}", host, first, num_devices)

    def holding(self, services: Iterable[str]) -> "Group":
        """The same devices with these services; one that holds nothing has no role."""
        held = tuple(sorted(set(services)))
        return replace(self, services=held, role=self.role if held else Role.MULTIPLEX)

    def plus(self, service: str) -> "Group":
        return self.holding((*self.services, service))

    def minus(self, service: str) -> "Group":
        return self.holding(name for name in self.services if name != service)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan with a higher ``number`` replaces those before it."""

    groups: tuple[Group, ...]
    number: int = 0

    def groups_of(self, service: str) -> tuple[Group, ...]:
        return tuple([group for group in self.groups if service in group.services])

    def with_groups(self, *changed: Group) -> "Plan":
        """Return the plan with these groups in the places of those with the same ids."""
        by_id = {group.id: group for group in changed}
        return replace(self, groups=tuple([by_id.get(group.id, group) for group in self.groups]))

    @property
    def services(self) -> frozenset[str]:
        return frozenset(name for group in self.groups for name in group.services)

    @property
    def held(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return what the engines hold. Roles are not in it: policies change them as well."""
        return [(group.id, group.services) for group in self.groups]

    @property
    def engines(self) -> list[str]:
        return [group.id for group in self.groups]

    @property
    def num_devices(self) -> int:
        return sum(group.num_devices for group in self.groups)

    def after_flips(self, before: "Plan", now: "Plan") -> "Plan":
        """Return the plan with the roles that engines have taken since it was searched for, where it had left them as
        they were ``before``; without them if a service would miss a phase.
        """
        was = {group.id: group.role for group in before.groups}
        roles = {group.id: group.role for group in now.groups}
        kept = [group for group in self.groups if was.get(group.id) is group.role]
        flipped = self.with_groups(*(replace(group, role=roles.get(group.id, group.role)) for group in kept))
        return flipped if has_all_phases(flipped, self.services) else self


def has_all_phases(plan: Plan, services: Iterable[str]) -> bool:
    """Return whether each of the services has engines for both of its phases."""
    for service in services:
        roles = {group.role for group in plan.groups_of(service)}
        if Role.MULTIPLEX not in roles and roles != {Role.PREFILL, Role.DECODE}:
            return False
    return True
