"""An engine whose computing can be made to hang for good.

    python -m tests.tools.harm.faults.hanging FILE -m engines ARGUMENTS

As ``python -m engines ARGUMENTS``, but the step that finds ``FILE`` removes it and never ends. The process does all
else that it does: it hears, says that it lives, and copies blocks.
"""

import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from engines import process
from engines.loading import Loaded, load
from engines.scheduling.batch import Batch, StepResult
from kvtransfer.peer_memories import PeerMemories
from mesh.topology.schema import EngineSpec, Topology

Execute = Callable[[Batch], StepResult]


def hanging(execute: Execute, file: Path) -> Execute:
    """The same until it finds the file."""

    def execute_or_hang(batch: Batch) -> StepResult:
        if file.exists():
            file.unlink()
            threading.Event().wait()
        return execute(batch)

    return execute_or_hang


def main() -> None:
    file, _, program, *arguments = sys.argv[1:]

    def load_hanging(topology: Topology, engine: EngineSpec, peers: PeerMemories) -> Loaded:
        loaded = load(topology, engine, peers)
        patch.object(loaded.executor, "execute", hanging(loaded.executor.execute, Path(file))).start()
        return loaded

    sys.argv = [program, *arguments]
    with patch.object(process, "load", load_hanging):
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
