"""Finds who examines a machine: this floor, and each installed package that knows more."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol

from mesh.doctor import machine
from mesh.doctor.findings import Finding, Health, Patient

FURTHER = "meshserve.doctor"


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
    yield machine
    for entry in entry_points(group=FURTHER):
        try:
            yield entry.load()
        except (ImportError, AttributeError) as error:
            yield Unloadable(entry.name, str(error))
