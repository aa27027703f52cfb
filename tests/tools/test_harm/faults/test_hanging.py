import threading
from pathlib import Path

from engines.scheduling.batch import Batch, StepResult
from tests.tools.harm.faults.hanging import hanging

BATCH, RESULT = Batch("chat", []), StepResult([], 0.5)


def test_steps_end_until_one_finds_the_file(tmp_path: Path):
    file = tmp_path / "engine"
    execute = hanging(lambda _: RESULT, file)
    assert execute(BATCH) is RESULT
    file.touch()
    step = threading.Thread(target=execute, args=(BATCH,), daemon=True)
    step.start()
    while file.exists():
        step.join(0.01)
    step.join(0.1)
    assert step.is_alive()
    assert execute(BATCH) is RESULT, "the next life of the engine does not hang"
