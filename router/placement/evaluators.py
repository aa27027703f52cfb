"""Who scores plans: found through the entry points ``meshserve.evaluators``, as it stands on a higher floor."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Protocol

from mesh.errors import UserError
from mesh.topology.schema import Slo
from router.placement.catalogue import Catalogue
from router.placement.search import Evaluator
from router.placement.traffic import Traffic

ENTRY_POINTS = "meshserve.evaluators"
SIMULATED = "simulated"


class Evaluators(Protocol):
    """Makes evaluators, until it is closed."""

    def evaluator(self, catalogue: Catalogue, traffic: Traffic, slos: Mapping[str, Slo]) -> Evaluator: ...

    def close(self) -> None: ...


def load_evaluators(num_workers: int) -> Evaluators:
    """The simulator's, with so many worker processes. Raise `UserError` if it is not installed."""
    found = entry_points(group=ENTRY_POINTS, name=SIMULATED)
    try:
        [entry] = found
        evaluators: Evaluators = entry.load()(num_workers)
    except (ValueError, ImportError, AttributeError) as error:
        why = "no such entry point" if not found else error
        what = f"plans cannot be scored: {ENTRY_POINTS}: {SIMULATED}: {why}"
        raise UserError(f"{what}; install meshserve again, with its package bench") from None
    return evaluators
