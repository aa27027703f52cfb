"""Holds what was found about one thing."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from mesh.topology.backends import backend_rules
from mesh.topology.schema import EngineSpec, Topology


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


def worst(findings: Iterable[Finding]) -> Health:
    order = list(Health)
    return max((finding.health for finding in findings), key=order.index, default=Health.OK)
