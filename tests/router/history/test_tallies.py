from mesh.wire.requests import FinishReason
from router.generation import Fault, Overloaded, RequestFailed, TokenBatch
from router.history.records import Outcome
from router.history.summary import record_of
from router.history.tallies import Tallies
from router.history.timelines import TimelineReaders, Timelines
from tests.router.cluster import SERVICE, make_spec


def told():
    """Tallies and the timelines that they read."""
    tallies = Tallies()

    def ended(timeline, _):
        tallies.ended(record_of(timeline), timeline.facts.service)

    return tallies, Timelines(TimelineReaders(arrived=(tallies.arrived,), ended=(ended,)))


def answer(timelines, spec, at, num_tokens, took_s):
    timeline = timelines.arrived(spec, at)
    tokens = TokenBatch(tuple(range(num_tokens)), FinishReason.LENGTH, 4, None, None)
    timelines.delivered(timeline, tokens, "engine", at + took_s)
    timelines.finished(timeline, FinishReason.LENGTH, at + took_s)


def test_sums_are_of_lengths_and_latencies():
    tallies, timelines = told()
    answer(timelines, make_spec("a", num_tokens=10, slo_ttft_s=1.0), 0.0, 3, 0.5)
    answer(timelines, make_spec("b", num_tokens=20, slo_ttft_s=1.0), 5.0, 4, 2.0)
    [tally] = tallies.read()
    assert tally.name == SERVICE
    assert (tally.arrived, tally.input_tokens, tally.input_squares) == (2, 30, 500)
    assert (tally.ended, tally.late, tally.answered) == (2, 1, 2)
    assert (tally.output_tokens, tally.output_squares, tally.latency_s) == (7, 25, 2.5)
    assert (tally.promised_ttft_s, tally.cached_tokens) == (2.0, 8)


def test_what_is_rejected_or_fails_is_late_and_not_answered():
    tallies, timelines = told()
    for name, error in (("a", Overloaded("full", 1.0)), ("b", RequestFailed("no", Fault.SERVER))):
        timelines.failed(timelines.arrived(make_spec(name), 0.0), error, 0.1)
    [tally] = tallies.read()
    assert (tally.arrived, tally.ended, tally.late, tally.answered) == (2, 2, 2, 0)


def test_a_client_that_goes_away_says_nothing_of_the_service():
    tallies, timelines = told()
    gone = timelines.arrived(make_spec("a"), 0.0)
    timelines.arrived(make_spec("b"), 1.0)
    timelines.left(gone, Outcome.CANCELLED, "no longer wanted", 9.0)
    [tally] = tallies.read()
    assert (tally.arrived, tally.ended, tally.late, tally.gone) == (2, 0, 0, 1)
