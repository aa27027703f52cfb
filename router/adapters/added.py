"""Keeps which adapters were added while the mesh runs, as all gateways agree: the newest word of any of them counts."""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from mesh.topology.schema import Topology
from mesh.wire.adapters import AddedAdapter, ExpectAdapter, ForgetAdapter

MOST_REMOVED: Final = 256  # that are remembered, lest a gateway that was away brings them back


class AddedAdapters:
    """One gateway's knowledge, by service.

    ``most``: that are served at a time. ``bases``: services that there are. ``taken``: names that are no adapter's.
    """

    def __init__(self, most: int, bases: Collection[str], taken: Collection[str] = ()) -> None:
        self.known: dict[str, AddedAdapter] = {}
        self._most = most
        self._bases = bases
        self._taken = taken

    @classmethod
    def of(cls, topology: Topology) -> "AddedAdapters":
        """Make that of a gateway of this deployment."""
        most = 0 if topology.added is None else topology.added.most
        taken = {name for service in topology.offered for name in (service.name, *service.aliases)}
        return cls(most, {service.name for service in topology.services}, taken)

    def __repr__(self) -> str:
        return f"<AddedAdapters {[*self.served]}>"

    @property
    def served(self) -> Mapping[str, AddedAdapter]:
        """Return those that are there."""
        return {name: one for name, one in self.known.items() if not one.is_removed}

    def order(self, wanted: AddedAdapter) -> list[AddedAdapter]:
        """Somebody asked this gateway for it. Return what is new; nothing if it is so already, or there is no room."""
        name, version = wanted.adapter.service, max((one.version for one in self.known.values()), default=0) + 1
        before = self.known.get(name)
        if before is not None and replace(before, version=0) == replace(wanted, version=0):
            return []
        return self.hear({name: replace(wanted, version=version)})

    def hear(self, told: Mapping[str, AddedAdapter]) -> list[AddedAdapter]:
        """Another gateway knows this. Return what is new.

        A gateway that has not heard yet that a base was removed tells of its adapters in vain.
        """
        new = []
        for name, one in told.items():
            if self._is_later(name, one):
                self.known[name] = one
                new.append(one)
        self._forget_some()
        return new

    def why_not(self, one: AddedAdapter) -> str | None:
        """Say why it cannot be served by what the deployment has; None: it can."""
        if one.adapter.service in self._taken:
            return "the deployment has a service of this name"
        return None if one.base in self._bases else f"its base {one.base} is no service any more"

    def _is_later(self, name: str, one: AddedAdapter) -> bool:
        known = self.known.get(name)
        has_room = name in self.served or len(self.served) < self._most
        is_possible = one.is_removed or (has_room and self.why_not(one) is None)
        return name == one.adapter.service and is_possible and (known is None or one.rank > known.rank)

    def _forget_some(self) -> None:
        removed = sorted((one for one in self.known.values() if one.is_removed), key=lambda one: one.version)
        for one in removed[: max(0, len(removed) - MOST_REMOVED)]:
            del self.known[one.adapter.service]


def word_for_engines(one: AddedAdapter) -> ExpectAdapter | ForgetAdapter:
    """Return what engines that have the base are told."""
    if one.is_removed:
        return ForgetAdapter(one.adapter.service)
    return ExpectAdapter(one.base, one.adapter)
