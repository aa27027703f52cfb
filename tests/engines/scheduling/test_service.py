import pytest

from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost, StepLoad
from engines.memory.block_pool import BlockPool
from engines.memory.pages import PagePool
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.service import Service
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape


def test_what_others_hear_is_corrected_by_what_steps_take():
    prefill = PrefillCost(0.01, 1e-3, 1e-6, 1e-5, chunk_tokens=64)
    decode = DecodeCost(0.02, 2e-3, 3e-6, ((1, 0.01), (4, 0.04)))
    service = Service(
        ServiceQueue("tiny", BlockPool(PagePool(8), 4)),
        KVShape(1, 1, 4, 4, "float32"),
        None,
        frozenset(),
        100,
        LearntCost(StepCost(prefill, decode)),
    )
    load = StepLoad([], 2, 10)
    assert service.status(0.0).decode_error is None
    for _ in range(200):
        service.learn(load, 2 * sum(StepCost(prefill, decode).parts(load)))
    status = service.status(0.0)
    assert status.prefill_cost == prefill
    assert status.decode_cost.fixed_s == pytest.approx(0.04, rel=1e-2)
    assert [size for size, _ in status.decode_cost.table] == [1, 4]
    assert [time_s for _, time_s in status.decode_cost.table] == pytest.approx([0.02, 0.08], rel=1e-2)
    assert status.decode_error == pytest.approx(0.0, abs=1e-2)
    assert status.prefill_error is None
