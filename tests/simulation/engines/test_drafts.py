"""Simulated engines speculate as real ones decide, with drafts that are right as often as the simulation says."""

from dataclasses import replace
from statistics import fmean

import pytest

from mesh.rules import DraftMethod
from mesh.topology.schema import Topology
from router.history.records import Outcome, Record
from simulation.engines.drafts import chance_of
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run

APART = [TraceRequest(20.0 * number, 300, 60) for number in range(6)]
AT_ONCE = [TraceRequest(0.06 * number, 300, 100) for number in range(120)]


def speculating(most: int = 7) -> Topology:
    plain = pair()
    [service] = plain.services
    return replace(plain, services=(replace(service, speculation=DraftMethod.PROMPT_LOOKUP, max_draft_tokens=most),))


def mean_tpot_s(records: list[Record]) -> float:
    assert {record.outcome for record in records} == {Outcome.FINISHED}
    return fmean(record.tpot_s or 0.0 for record in records)


def with_acceptance(chance: float, trace: list[TraceRequest]) -> list[Record]:
    return run(speculating(), trace, physics=Physics(draft_acceptance=chance))


def test_the_more_drafts_are_right_the_faster_answers_come():
    times = [mean_tpot_s(with_acceptance(chance, APART)) for chance in (0.0, 0.5, 0.95)]
    plain = mean_tpot_s(run(pair(), APART))
    assert times == sorted(times, reverse=True)
    assert times[-1] < plain / 3
    assert times[0] < 1.02 * plain  # what fails is given up


def test_answers_are_as_long_as_their_trace_says():
    assert {record.output_tokens for record in with_acceptance(0.8, APART)} == {60}


def test_a_full_engine_loses_nothing():
    plain, drafted = mean_tpot_s(run(pair(), AT_ONCE)), mean_tpot_s(with_acceptance(0.3, AT_ONCE))
    assert drafted < 1.02 * plain


@pytest.mark.parametrize("mean", [0.0, 0.3, 0.9, 1.0])
def test_requests_differ_and_are_right_as_often_as_the_mean_says(mean: float):
    chances = [chance_of(f"r{number}", mean) for number in range(300)]
    assert fmean(chances) == pytest.approx(mean, abs=0.06)
    assert (len(set(chances)) > 200) == (0.0 < mean < 1.0)
