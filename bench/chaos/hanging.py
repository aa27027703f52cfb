"""An engine whose computing can be made to hang for good.

    python -m bench.chaos.hanging FILE -m engines ARGUMENTS

As ``python -m engines ARGUMENTS``, but the step that finds ``FILE`` removes it and never ends. The process does all
else that it does: it hears, says that it lives, and copies blocks.
"""

import runpy
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from engines import process
from engines.loading import Loaded, load
from engines.scheduling.batch import Batch, StepExecutor, StepResult
from kvtransfer.peer_memories import PeerMemories
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.transfers import KVShape


@dataclass(frozen=True, slots=True)
class Hanging:
    """A `StepExecutor` around another one."""

    inner: StepExecutor
    file: Path

    def shape(self, service: str) -> KVShape:
        return self.inner.shape(service)

    def execute(self, batch: Batch) -> StepResult:
        if self.file.exists():
            self.file.unlink()
            threading.Event().wait()
        return self.inner.execute(batch)

    def recover(self, *, frees_memory: bool) -> None:
        self.inner.recover(frees_memory=frees_memory)


def main() -> None:
    file, _, program, *arguments = sys.argv[1:]

    def load_hanging(topology: Topology, engine: EngineSpec, peers: PeerMemories) -> Loaded:
        loaded = load(topology, engine, peers)
        loaded.executor = Hanging(loaded.executor, Path(file))
        return loaded

    sys.argv = [program, *arguments]
    with patch.object(process, "load", load_hanging):
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
