"""A failing scenario without all that its failure does not need."""

from bench.fault_runs.play import play
from bench.fault_runs.scenario import Scenario


def reduced(scenario: Scenario) -> Scenario:
    """The same if it does not fail. Whatever can be left out while a failure of the same kind remains, is."""
    failure = play(scenario).failure
    if failure is None:
        return scenario
    kind = failure.kind
    while True:
        for smaller in scenario.smaller():
            again = play(smaller).failure
            if again is not None and again.kind == kind:
                scenario = smaller
                break
        else:
            return scenario
