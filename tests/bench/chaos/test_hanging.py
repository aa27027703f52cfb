import threading
from pathlib import Path

from bench.chaos.hanging import Hanging
from engines.scheduling.batch import Batch, StepResult
from mesh.wire.transfers import KVShape

BATCH, RESULT = Batch("chat", []), StepResult([], 0.5)


class Executor:
    def shape(self, service: str) -> KVShape:
        raise NotImplementedError

    def execute(self, batch: Batch) -> StepResult:
        return RESULT


def test_steps_end_until_one_finds_the_file(tmp_path: Path):
    file = tmp_path / "engine"
    hanging = Hanging(Executor(), file)
    assert hanging.execute(BATCH) is RESULT
    file.touch()
    step = threading.Thread(target=hanging.execute, args=(BATCH,), daemon=True)
    step.start()
    while file.exists():
        step.join(0.01)
    step.join(0.1)
    assert step.is_alive()
    assert hanging.execute(BATCH) is RESULT, "the next life of the engine does not hang"
