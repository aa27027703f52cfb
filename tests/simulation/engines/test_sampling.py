from router.history.records import Outcome
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from tests.simulation.small import pair, run

TRACE = [TraceRequest(0.2 * number, 300, 40, is_structured=number % 2 == 0) for number in range(20)]


def mean_tpot_s(records, trace, *, is_structured):
    mine = [record for record in records if trace[int(record.id[1:])].is_structured is is_structured]
    return sum(record.tpot_s for record in mine) / len(mine)


def test_structured_answers_are_as_long_as_their_trace_says_though_masks_are_late():
    records = run(pair(), TRACE, physics=Physics(late_masks=0.3))
    assert [record.outcome for record in records] == [Outcome.FINISHED] * len(TRACE)
    assert {record.output_tokens for record in records} == {40}


def test_late_masks_cost_the_requests_that_wait_for_them_time_and_not_the_others():
    late, plain = run(pair(), TRACE, physics=Physics(late_masks=0.5)), run(pair(), TRACE)
    slower = mean_tpot_s(late, TRACE, is_structured=True) / mean_tpot_s(plain, TRACE, is_structured=True)
    others = mean_tpot_s(late, TRACE, is_structured=False) / mean_tpot_s(plain, TRACE, is_structured=False)
    assert 1.7 < slower < 2.5
    assert others < 1.2


def test_coasting_passes_no_step_by_in_which_a_mask_may_be_late():
    physics = Physics(late_masks=0.3)
    exact, coasted = (run(pair(), TRACE, physics=physics, coasts=coasts) for coasts in (False, True))
    assert [record.tpot_s for record in coasted] == [record.tpot_s for record in exact]


def test_structured_answers_whose_masks_come_in_time_take_as_long_as_others():
    plain = [TraceRequest(request.at_s, 300, 40) for request in TRACE]
    assert [one.tpot_s for one in run(pair(), TRACE)] == [one.tpot_s for one in run(pair(), plain)]
