"""The placement daemon in a simulated mesh decides as the product does; here its plans are given."""

from dataclasses import replace

import pytest

from mesh.topology.schema import PlacementSpec
from router.history.records import Outcome
from router.placement.change.replacement import Proposal, Verdict
from router.placement.search import question
from router.placement.search.question import Answer, SearchFailed
from router.placement.search.score import Score
from simulation.cluster import Simulation
from simulation.engines.physics import Physics
from simulation.faults.faults import FailLoad, Kill
from simulation.loads.workload import SloRule
from simulation.placement.daemon import ModelledSearch, SearchResult
from simulation.placement.evaluator import LocalSimulators
from tests.simulation.placement import mesh

INTERVAL_S, SEARCH_S = 30.0, 6.0
BEFORE = [("s0", "s1"), ("s0", "s2"), ("s0", "s3"), ("s0", "s4")]
AFTER = [("s0", "s1"), ("s1", "s2"), ("s1", "s3"), ("s1", "s4")]
NOTHING = Score({})
SPEC = PlacementSpec(interval_s=INTERVAL_S, shortest_s=INTERVAL_S, longest_s=INTERVAL_S)


class Given:
    """Finds AFTER, always."""

    def __init__(self):
        self.questions = []

    def __call__(self, question):
        self.questions.append(question)
        groups = zip(question.present.groups, AFTER, strict=True)
        plan = replace(question.present, groups=tuple(group.holding(services) for group, services in groups))
        verdict = Verdict.KEEP if plan == question.present else Verdict.REPLACE
        return SearchResult(Answer(Proposal(plan, verdict, NOTHING, NOTHING, 3), {}), SEARCH_S)


def play(search, *, faults=(), span_s=90.0, load=None):
    what = mesh.topology(BEFORE, SPEC)
    notes, records = [], []
    simulation = Simulation(
        what,
        dict.fromkeys([spec.id for spec in what.engines], mesh.PROFILE),
        seed=0,
        physics=Physics(),
        slo=SloRule(),
        coasts=True,
        search=search,
        on_note=lambda now, note: notes.append((now, note.line)),
        faults=faults,
    )
    load = load or mesh.Load(0.8, span_s, seed=3, shift_at_s=20.0)
    simulation.run("s0", load.trace(), records.append)
    return simulation, notes, records


def held(simulation):
    return [tuple(sorted(engine.core._services)) for _, engine in sorted(simulation.engines.items())]


def when(notes, words):
    return next(at for at, line in notes if words in line)


@pytest.fixture(scope="module")
def given():
    return Given()


@pytest.fixture(scope="module")
def undisturbed(given):
    return play(given)


def test_a_plan_is_carried_out_without_losing_a_request(undisturbed):
    simulation, notes, records = undisturbed
    assert held(simulation) == AFTER
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    asked_at = when(notes, "began") + INTERVAL_S
    assert when(notes, "is to be carried out") == pytest.approx(asked_at + SEARCH_S, abs=1.5)
    load_s = mesh.PRESET.weight_bytes / mesh.PRESET.weight_bytes_per_s
    assert when(notes, "is carried out") >= asked_at + SEARCH_S + load_s
    assert sum("is carried out" in line for _, line in notes) == 1


def test_questions_are_about_what_was_asked_for():
    search = Given()
    load = mesh.Load(2.0, 130.0, seed=4)
    play(search, load=load)
    for asked in (one.asked for one in search.questions[1:3]):
        rates = {name: service.rate for name, service in asked.services.items()}
        assert sum(rates.values()) == pytest.approx(2.0, abs=0.8)
        assert max(rates, key=rates.__getitem__) == "s0"
        assert asked.services["s0"].num_input.mean == pytest.approx(20_000, rel=0.2)


def test_a_daemon_that_dies_while_a_plan_is_carried_out_is_followed_by_one_that_finishes_it(undisturbed):
    plain, notes, _ = undisturbed
    begun_at = when(notes, "loading")
    search = Given()
    simulation, notes, records = play(search, faults=[Kill("placement", begun_at + 0.5, 1.0)])
    assert held(simulation) == AFTER == held(plain)
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    assert sum("goes on with interval" in line for _, line in notes) == 1
    assert sum("all engines know of it" in line for _, line in notes) == 1


def test_a_service_that_cannot_be_loaded_ends_the_change_and_everything_goes_on():
    simulation, notes, records = play(Given(), faults=[FailLoad("engine-2", 1.0)])
    assert any("given up: engine-2 did not load s1" in line for _, line in notes)
    assert held(simulation)[2] == BEFORE[2]
    assert {record.outcome for record in records} == {Outcome.FINISHED}


def test_a_search_without_an_answer_changes_nothing():
    simulation, notes, _ = play(lambda question: SearchResult(SearchFailed("does not fit"), 1.0))
    assert held(simulation) == BEFORE
    assert any("does not fit" in line for _, line in notes)


def test_the_products_search_answers(given, undisturbed, monkeypatch):
    monkeypatch.setattr(question, "LEAST_JUDGED", 20)
    search = ModelledSearch(LocalSimulators(), num_batches=0, greedy_s=5.0)
    found = search(given.questions[0])
    assert found.elapsed_s == 5.0 + SPEC.improve_s
    assert isinstance(found.answer, Answer)
    assert found.answer.proposal.plan.services == set(mesh.SERVICES)
