"""What one iteration computes, and how far its prompts have come."""

import pytest

from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost, StepLoad
from engines.engine_request import EngineRequest
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.batch import Drafting
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import Share
from engines.scheduling.service import Service
from engines.scheduling.step import Step, num_drafts
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape
from tests.engines.conftest import MakeSequence

STEP_COST = StepCost(PrefillCost(0.0, 0.01), DecodeCost(0.02, 0.0))  # 10 ms a token of a prompt


def a_service(name: str = "tiny") -> Service:
    queue = ServiceQueue(name, BlockPool(PagePool(8), 4))
    return Service(queue, KVShape(1, 1, 4, 4, "float32"), None, frozenset(), 100, LearntCost(STEP_COST))


def prompt(make_sequence: MakeSequence, name: str, num_tokens: int, num_computed: int = 0) -> Share:
    request = make_sequence(name, num_prompt=40)
    request.num_computed = num_computed
    return Share(request, num_tokens)


def decode(make_sequence: MakeSequence, name: str, drafts: tuple[int, ...] = ()) -> Share:
    request: EngineRequest = make_sequence(name, num_prompt=8)
    request.tokens.append(5)
    request.num_computed = 8
    return Share(request, 1, drafts)


@pytest.fixture
def step(make_sequence: MakeSequence) -> Step:
    prompts = [prompt(make_sequence, "a", 10), prompt(make_sequence, "b", 20, num_computed=16)]
    decodes = [decode(make_sequence, "c"), decode(make_sequence, "d", drafts=(1, 2))]
    return Step(a_service(), [*decodes, *prompts], prompts, started_at=100.0)


def test_a_draft_is_a_row_of_decodes_with_the_context_of_its_request(step: Step):
    assert step.load() == StepLoad([(10, 0), (20, 16)], 1 + 3, 9 + 3 * 9)


def test_prompts_are_computed_one_after_the_other(step: Step):
    a, b = (share.request for share in step.prompts)
    found = [step.prefills_left_s(now) for now in (100.0, 100.06, 100.2, 200.0)]
    assert [(pytest.approx(one[a]), pytest.approx(one[b])) for one in found] == [
        (0.1, 0.2),
        (0.04, 0.2),
        (0.0, 0.1),
        (0.0, 0.0),
    ]


def test_no_more_is_done_of_prompts_than_the_step_was_given(step: Step):
    assert step.prefill_done_s(100.06) == pytest.approx(0.06)
    assert step.prefill_done_s(200.0) == pytest.approx(0.3)


def test_a_step_needs_the_weights_of_its_service_and_of_those_that_draft_for_it(make_sequence: MakeSequence):
    drafting = Drafting("small", [1], 8, 9, 4)
    share = Share(decode(make_sequence, "c").request, 1, drafting=drafting)
    service = a_service()
    step = Step(service, [share], [], 0.0)
    assert step.drafting() == [drafting]
    assert [step.computes(one) for one in (service, a_service("small"), a_service("other"))] == [True, True, False]
    assert num_drafts(share) == 4, "those that the draft model will have written"
    assert num_drafts(decode(make_sequence, "d", drafts=(1, 2))) == 2
