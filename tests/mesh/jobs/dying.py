"""Work for workers that fails in each way that there is."""

import os
import signal
from pathlib import Path


class OddError(Exception):
    """An error that does not survive a pickle."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def work(job: str) -> str:
    """``die``; ``die once FILE``; ``odd``; else the job itself, in capitals."""
    kind, _, path = job.partition(":")
    if kind == "die" or (kind == "die once" and not Path(path).exists()):
        if path:
            Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "odd":
        raise OddError("quite", "odd")
    return job.upper()
