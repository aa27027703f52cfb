"""Answers of a trained model are the same with drafts, in batches that mix all kinds of requests."""

from engines.speculation.speculation import Speculation
from mesh.wire.requests import Sampling
from tests.engines.contract.computers import FOLDER
from tests.engines.torch_engine.test_shared_memory import Engine

TEXT = [*b"the cat sat on the mat, the cat sat on the mat, the cat sat on the "]
SAMPLINGS = {
    "greedy": Sampling(max_tokens=1, seed=1, temperature=0.0),
    "sampled": Sampling(max_tokens=1, seed=2, temperature=0.5),
    "penalised": Sampling(max_tokens=1, seed=3, temperature=0.0, repetition_penalty=1.2, presence_penalty=0.3),
    "told": Sampling(max_tokens=1, seed=4, temperature=0.0, logprobs=2),
}


def answers(most: int) -> tuple[dict[str, list[int]], Engine]:
    engine = Engine(160, one=(FOLDER, "float32"))
    service = engine.core._services["one"]
    service.speculation = Speculation(most) if most else None
    for name, sampling in SAMPLINGS.items():
        engine.submit(name, "one", [*name.encode(), *TEXT], sampling)
    return engine.run(), engine


def test_answers_are_those_without_drafts():
    without, _ = answers(0)
    with_drafts, engine = answers(7)
    assert with_drafts == without
    counts = engine.core._services["one"].speculation.counts
    assert 0 < counts.num_accepted <= counts.num_drafted
