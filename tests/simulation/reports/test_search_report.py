"""What is said of a search for a topology that proved nothing."""

from engines.costs.presets import load_preset
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Role
from simulation.reports.search import SearchReport
from simulation.search.candidates import EngineOffer, OfferedEngines, SearchCandidate
from simulation.search.evidence import Keeping, SampleResult
from simulation.search.halving import Halving, SearchEffort

OFFER = EngineOffer(load_preset("a100-llama2-13b-tp1"), "a100", 1.0)
EFFORT = SearchEffort(0.9, 0.95, 20, 5)


def report_of(counts: list[int]) -> SearchReport:
    """Candidates with so many engines, none of which the samples tell from the goal."""
    candidates = [
        SearchCandidate((OfferedEngines(OFFER, Role.MULTIPLEX, count),), PolicySpec("elastic"), 512) for count in counts
    ]
    halving = Halving([one.price for one in candidates], EFFORT)
    for tried in halving.tried:
        tried.num_requests, tried.results = 2, [SampleResult(1.0, 0.5, 0.1, 2)]
    halving.keeping = dict.fromkeys(range(len(counts)), Keeping.OPEN)
    return SearchReport(candidates, halving, EFFORT)


def test_the_cheapest_that_are_not_ruled_out_are_named_and_the_others_counted():
    said = list(report_of([5, 1, 4, 2, 3]).sentences())
    named = [line.partition(" not ruled out: ")[2] for line in said if " not ruled out: " in line]
    assert [name.partition(" x ")[0] for name in named] == ["1", "2", "3"]
    assert "2 more that are cheaper are not ruled out; the table has them as open" in said


def test_a_few_are_all_named():
    said = list(report_of([3, 1, 2]).sentences())
    assert sum(" not ruled out: " in line for line in said) == 3
    assert not [line for line in said if "more that are cheaper" in line]
