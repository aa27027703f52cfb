"""Keeps what the placement daemon knows of engines that span others: which run, and which did not start lately."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from mesh.addresses import supervisors
from mesh.topology.schema import Topology
from mesh.wire.control import EnginePlace
from mesh.wire.status import ChildStatus, EngineStatus, SupervisorStatus
from router.placement.change.regroup import RegroupChange
from router.placement.observe.device_ways import DeviceWays
from router.placement.observe.failures import FORGIVEN_AFTER
from router.placement.search.span import regroupings

UNDER_WAY = ("starting", "restarting", "leaving")  # states of a process


class Devices:
    """The devices of a topology's engines that can be used in several ways."""

    def __init__(self, topology: Topology) -> None:
        self.children: dict[str, ChildStatus] = {}
        self._ways = DeviceWays.of(topology)
        self._names = frozenset(name for span in self._ways.spans for name in span.names)
        self._supervisor_of = supervisors(topology)
        self._failed_in: dict[str, int] = {}  # engines that did not start, and the interval
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"<Devices { ({name: child.state for name, child in self.children.items()}) }>"

    @property
    def is_changing(self) -> bool:
        """Return whether engines are about to give their devices to others, or to come back."""
        return any(child.state in UNDER_WAY for child in self.children.values())

    def hear(self, status: SupervisorStatus) -> None:
        self.children |= {child.process: child for child in status.children if child.process in self._names}

    def ways(self, interval: int) -> DeviceWays:
        """Return how devices can be used at the end of an interval."""
        failed = (name for name, seen_in in self._failed_in.items() if interval <= seen_in + FORGIVEN_AFTER)
        return replace(self._ways, failed=frozenset(failed))

    def change(
        self, here: Collection[str], places: Mapping[str, EnginePlace], now: float, repeat_s: float
    ) -> RegroupChange | None:
        """Return what leads from the engines that are ``here`` to those that have ``places``; None if they are here."""
        found = regroupings(here, places, self._ways.spans)
        return RegroupChange(found, places, self._supervisor_of, now, repeat_s=repeat_s) if found else None

    def did_not_begin(self, engines: Collection[str], interval: int) -> None:
        self._failed_in |= dict.fromkeys(engines, interval)

    def not_known(self, remembered: Iterable[EngineStatus]) -> list[str]:
        """Return a line for each engine that plans leave out because nobody knows its costs: once."""
        sizes = {status.num_devices for status in remembered} | self._ways.profiles.keys()
        unknown = {
            group.id for span in self._ways.spans for group in span.groups if group.num_devices not in sizes
        } - self._said
        self._said |= unknown
        return [
            f"no plan uses {name}: nobody knows what an engine of its size costs; give it a profile, or start it once"
            for name in sorted(unknown)
        ]
