"""Finds who scores plans through the entry points ``meshserve.evaluators``, as the simulator is a floor above."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from mesh.errors import UserError
from mesh.topology.schema import Slo
from router.placement.observe.conduct import Conduct
from router.placement.observe.requirements import Catalogue
from router.placement.observe.traffic import Traffic
from router.placement.search.search import Evaluator

ENTRY_POINTS = "meshserve.evaluators"
SIMULATED = "simulated"


class Evaluators(Protocol):
    """Makes evaluators, until it is closed."""

    def evaluator(
        self, catalogue: Catalogue, traffic: Traffic, slos: Mapping[str, Slo], conduct: Conduct
    ) -> Evaluator: ...

    def close(self) -> None: ...


def find_evaluators() -> EntryPoint:
    """Return where the simulator's evaluators are, without loading it. Raise `UserError` if it is not installed."""
    found = list(entry_points(group=ENTRY_POINTS, name=SIMULATED))
    if len(found) != 1:
        raise _missing("no such entry point" if not found else "there are several")
    return found[0]


def load_evaluators(num_workers: int) -> Evaluators:
    """The simulator's, with so many worker processes. Raise `UserError` if it is not installed."""
    try:
        evaluators: Evaluators = find_evaluators().load()(num_workers)
    except (ImportError, AttributeError) as error:
        raise _missing(str(error)) from None
    return evaluators


def _missing(why: str) -> UserError:
    what = f"plans cannot be scored: {ENTRY_POINTS}: {SIMULATED}: {why}"
    return UserError(f"{what}; install meshserve again, with its package bench")
