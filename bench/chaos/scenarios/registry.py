"""Scenarios by name, in the order in which they run."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.chaos.trial import Trial

Run = Callable[[Trial], Awaitable[None]]

MESHES = PLAIN, HOSTS, PLACED, RELAYED = "plain", "hosts", "placed", "relayed"


@dataclass(frozen=True, slots=True)
class Scenario:
    """``mesh``: processes that talk directly, on one host or several, two services that a daemon places, or processes
    that talk through the harness.

    ``in_short``: part of the short form.
    """

    name: str
    title: str
    mesh: str
    in_short: bool
    run: Run


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, title: str, mesh: str = PLAIN, *, in_short: bool = False) -> Callable[[Run], Run]:
    """Add a function to the scenarios."""

    def add(run: Run) -> Run:
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        SCENARIOS[name] = Scenario(name, title, mesh, in_short, run)
        return run

    return add
