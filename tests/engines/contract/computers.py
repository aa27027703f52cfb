"""Executors of every backend over KV memory of their own, behind one interface: what the contract tests drive.

vLLM computes in a process of its own, under the interpreter that has it; batches and results cross a pipe.
"""

import os
import pickle
import random
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from engines.adapters.folder import AdapterFolder
from engines.costs.step_cost import StepCost
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, ChunkResult, StepExecutor
from engines.simulated import HEAD_DIM, SimulatedExecutor, SimulatedService
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.sampling.sampler import Sampler
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from mesh.wire.status import DecodeCost, PrefillCost
from mesh.wire.transfers import KVShape
from tests.engines.runner import Runner

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/models/byte-llama"
SERVICE, BLOCK_SIZE, NUM_BLOCKS = "model", 32, 400
LOG_LINES = 30


class Computer(Protocol):
    """An executor of ``SERVICE`` with ``NUM_BLOCKS`` blocks of ``BLOCK_SIZE`` tokens."""

    def compute(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]: ...

    def copy_block(self, source: int, destination: int) -> None:
        """Its bytes, as a transfer would."""

    def close(self) -> None: ...


class Local:
    """In this process."""

    def __init__(self, executor: StepExecutor, memory: KVMemory) -> None:
        self._executor = executor
        self._memory = memory

    def compute(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
        return self._executor.execute(Batch(SERVICE, chunks)).chunks

    def copy_block(self, source: int, destination: int) -> None:
        self._memory[destination] = self._memory[source]

    def close(self) -> None:
        self._memory.close()


def torch_computer() -> Computer:
    config = ModelConfig.load(FOLDER)
    shape = kv_shape(config, "float32", BLOCK_SIZE)
    memory = PagedMemory(PageLayout.of([shape], NUM_BLOCKS))
    pages = memory.pages.reshape(-1).data
    service = TorchService(SERVICE, FOLDER, config, "float32", BLOCK_SIZE, pages, memory.layout.page_bytes)
    return Local(TorchExecutor([service]), KVMemory(memory, shape))


def simulated_computer() -> Computer:
    memory = KVMemory.alone(KVShape(1, 1, HEAD_DIM, BLOCK_SIZE, "float16"), NUM_BLOCKS)
    cost = StepCost(PrefillCost(0.0, 0.0), DecodeCost(0.0, 0.0))
    executor = SimulatedExecutor(sleep=lambda _: None)
    executor.add(SimulatedService(SERVICE, cost, memory, range(256)))
    return Local(executor, memory)


class KeepsNoBlocks:
    """transformers, in this process."""

    def __init__(self) -> None:
        from engines.transformers_engine.backend import counted  # takes seconds: only for those who compute with it
        from engines.transformers_engine.executor import TransformersExecutor, TransformersModel, load_model

        model, sampler = load_model(FOLDER, "float32", "cpu"), Sampler.of(FOLDER, ModelConfig.load(FOLDER))
        self._executor = TransformersExecutor(
            [TransformersModel(SERVICE, model, counted(BLOCK_SIZE), sampler)], threads=1
        )

    def compute(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
        return self._executor.execute(Batch(SERVICE, chunks)).chunks

    def copy_block(self, source: int, destination: int) -> None:
        raise NotImplementedError("KV lies in a cache of transformers' own")

    def close(self) -> None:
        """Nothing is held beyond the process."""


class Remote:
    """Under another interpreter: see `tests.engines.contract.vllm_child`."""

    def __init__(self, python: str, log: Path, *arguments: str) -> None:
        self._log = log
        command = [python, "-m", "tests.engines.contract.vllm_child", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with log.open("wb") as stderr:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, env=environment
            )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def compute(self, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
        self._say(("compute", list(chunks)))
        return self._answer()  # type: ignore[return-value]

    def copy_block(self, source: int, destination: int) -> None:
        self._say(("copy_block", (source, destination)))
        self._answer()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def form(self) -> str:
        """How bytes lie in its blocks."""
        self._say(("form", None))
        return str(self._answer())

    def read_block(self, block: int) -> bytes:
        self._say(("read_block", block))
        return self._answer()  # type: ignore[return-value]

    def write_block(self, block: int, content: bytes) -> None:
        self._say(("write_block", (block, content)))
        self._answer()

    def add_adapter(self, key: str, folder: AdapterFolder) -> None:
        self._say(("add_adapter", (key, folder)))
        self._answer()

    def remove_adapter(self, key: str) -> None:
        self._say(("remove_adapter", key))
        self._answer()

    def _say(self, question: object) -> None:
        assert self._child.stdin is not None
        pickle.dump(question, self._child.stdin)
        self._child.stdin.flush()

    def _answer(self) -> object:
        assert self._child.stdout is not None
        try:
            answer = pickle.load(self._child.stdout)
        except EOFError:
            words = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise RuntimeError(f"the child ended:\n{words}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.stdout.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Desk:
    """What one test does with a computer: gives requests blocks, in random order, that no other of the test has."""

    def __init__(self, computer: Computer, seed: int) -> None:
        self.computer = computer
        self._free = list(range(NUM_BLOCKS))
        random.Random(seed).shuffle(self._free)
        self._num_runners = 0

    def take(self) -> int:
        return self._free.pop()

    def runner(self) -> Runner:
        """Its requests share nothing with those of other runners."""
        self._num_runners += 1
        return Runner(self.computer.compute, self.take, BLOCK_SIZE, f"{self._num_runners}-")


def random_prompts(lengths: Iterable[int], seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(256) for _ in range(length)] for length in lengths]
