"""Holds what was found about one thing, and finds the packages that know more."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from typing import Protocol

from mesh.topology.backends import backend_rules
from mesh.topology.schema import EngineSpec, Topology

FURTHER = "meshserve.doctor"


class Health(StrEnum):
    """Says whether a mesh can use it."""

    OK = "ok"
    SLOW = "slow"  # it works, and could be faster or hold more
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing as it is. ``mend``: what to do about it; empty where nothing is to be done."""

    about: str
    health: Health
    text: str
    mend: str = ""

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.about}: {self.text}" + (f"; {self.mend}" if self.mend else "")


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at: a machine, for a deployment if there is one. ``host``: which of its hosts this machine is."""

    topology: Topology | None = None
    host: str | None = None

    @property
    def engines(self) -> tuple[EngineSpec, ...]:
        """Return those that start here and compute, with the interpreter of this environment or another one."""
        if self.topology is None:
            return ()
        modelled = {name for rules in backend_rules() for name in rules.MODELLED}
        here = (one for one in self.topology.engines if one.host == self.host and not one.is_standby)
        return tuple(one for one in here if one.backend not in modelled)


class Examiner(Protocol):
    """A module with these functions, under the entry points `FURTHER`."""

    def glance(self, patient: Patient) -> Iterable[Finding]:
        """Find what is slow or broken, within milliseconds: no other process is started."""

    def examine(self, patient: Patient) -> Iterable[Finding]:
        """Find everything."""


@dataclass(frozen=True, slots=True)
class Unloadable:
    """Stands for an examiner whose package is broken. Meshes start all the same: who is broken says so itself."""

    name: str
    reason: str

    def glance(self, patient: Patient) -> Iterable[Finding]:
        return ()

    def examine(self, patient: Patient) -> Iterable[Finding]:
        return [Finding(self.name, Health.BROKEN, f"cannot be loaded: {self.reason}", "install it again")]


def examiners() -> Iterator[Examiner]:
    """Return those of this floor and of all packages that are installed. One that cannot be loaded finds just that."""
    from mesh.doctor import machine

    yield machine
    for entry in entry_points(group=FURTHER):
        try:
            yield entry.load()
        except (ImportError, AttributeError) as error:
            yield Unloadable(entry.name, str(error))


def worst(findings: Iterable[Finding]) -> Health:
    order = list(Health)
    return max((finding.health for finding in findings), key=order.index, default=Health.OK)
