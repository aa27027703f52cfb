"""Simulated engines speculate as real ones decide, with drafts that are right as often as the simulation says."""

from dataclasses import replace
from statistics import fmean

import pytest

from mesh.rules import DraftMethod
from mesh.topology.schema import Topology
from mesh.wire.status import DecodeCost, PrefillCost
from router.history.records import Outcome, Record
from simulation.engines.drafts import chance_of
from simulation.engines.physics import Physics
from simulation.engines.shared_profiles import SharedProfile
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import SERVICE, Profile, pair, run

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


def with_draft_model(share: float, trace: list[TraceRequest], chance: float) -> list[Record]:
    """``share``: of the time of the model that it drafts for."""
    plain, cost = pair(), Profile()
    [service] = plain.services
    drafted = replace(service, speculation=DraftMethod.DRAFT_MODEL, draft="small")
    engines = tuple(replace(engine, services=(SERVICE, "small")) for engine in plain.engines)
    topology = replace(plain, services=(drafted, replace(service, name="small")), engines=engines)
    small = Profile(
        PrefillCost(share * cost.prefill.fixed_s, share * cost.prefill.per_token_s),
        DecodeCost(share * cost.decode.fixed_s, share * cost.decode.per_request_s),
    )
    profile = SharedProfile.of({SERVICE: cost, "small": small})
    return run(topology, trace, profile=profile, physics=Physics(draft_acceptance=chance))


def test_a_draft_model_pays_if_it_is_fast():
    """Its time is in the steps that check what it wrote."""
    plain = mean_tpot_s(run(pair(), APART))
    fast, slow = (mean_tpot_s(with_draft_model(share, APART, 0.8)) for share in (0.05, 0.5))
    assert fast < 0.6 * plain
    assert fast < slow < 1.02 * plain


def test_a_draft_model_pays_with_several_at_once():
    together = [TraceRequest(0.0, 1000, 100) for _ in range(8)]
    plain, drafted = mean_tpot_s(run(pair(), together)), mean_tpot_s(with_draft_model(0.1, together, 0.8))
    assert drafted < 0.8 * plain


def test_a_full_engine_loses_nothing_to_a_draft_model():
    plain, drafted = mean_tpot_s(run(pair(), AT_ONCE)), mean_tpot_s(with_draft_model(0.1, AT_ONCE, 0.3))
    assert drafted < 1.02 * plain


def test_what_grammars_force_saves_steps_of_their_requests():
    structured = [replace(request, is_structured=True) for request in APART]
    times = {
        chance: mean_tpot_s(run(speculating(), structured, physics=Physics(draft_acceptance=0.0, forced_tokens=chance)))
        for chance in (0.0, 0.5)
    }
    assert times[0.5] < 0.75 * times[0.0]
    free = mean_tpot_s(run(speculating(), APART, physics=Physics(draft_acceptance=0.0, forced_tokens=0.5)))
    assert free == times[0.0]


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
