"""One model in a torch executor of this process, with scratch KV blocks: for benches without a mesh."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from engines.adapters.folder import AdapterFolder
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw, StepResult
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.gpu_memory import open_gpu, pages_tensor
from engines.torch_engine.shape import kv_shape
from kvtransfer.gpu.device_memory import DeviceMemory
from kvtransfer.layout import PageLayout
from mesh.wire.requests import Sampling

BLOCK_SIZE = 16
GREEDY = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), (), 0, 0)


class EngineUnderTest:
    """``max_tokens`` is the KV capacity, of all requests together. ``device``: cpu or cuda:N."""

    def __init__(
        self,
        folder: Path,
        dtype: str,
        max_tokens: int,
        device: str = "cpu",
        kv_dtype: str | None = None,
        *,
        threads: int = 1,
    ) -> None:
        config = ModelConfig.load(folder)
        layout = PageLayout.of([kv_shape(config, dtype, BLOCK_SIZE, kv_dtype)], -(-max_tokens // BLOCK_SIZE))
        self.block_bytes = layout.page_bytes
        memory: bytearray | Tensor
        if device == "cpu":
            memory = bytearray(layout.num_pages * layout.page_bytes)
        else:
            memory = pages_tensor(DeviceMemory(layout, open_gpu(device)))
        service = TorchService("model", folder, config, dtype, BLOCK_SIZE, memory, layout.page_bytes, kv_dtype=kv_dtype)
        self._executor = TorchExecutor([service], device, threads)

    def add_adapter(self, key: str, adapter: AdapterFolder) -> None:
        """Chunks may name it from now on."""
        self._executor.add_adapter("model", key, adapter)

    @staticmethod
    def blocks(request: int, num_tokens: int) -> list[int]:
        """Block table of the request with this number, if all have ``num_tokens``."""
        count = -(-num_tokens // BLOCK_SIZE)
        return list(range(request * count, (request + 1) * count))

    def execute(self, chunks: Sequence[Chunk]) -> StepResult:
        return self._executor.execute(Batch("model", chunks))

    def decode(self, num_requests: int, context: int) -> float:
        """Seconds of one greedy decode step of requests of ``context`` tokens, the new one counted."""
        tables = [self.blocks(request, context) for request in range(num_requests)]
        chunks = [Chunk(str(i), [100 + i], context - 1, table, GREEDY) for i, table in enumerate(tables)]
        return self.execute(chunks).elapsed_s

    def prefill(self, num_tokens: int) -> float:
        """Seconds of a prompt in one chunk, its first token drawn."""
        tokens = [100 + number % 100 for number in range(num_tokens)]
        return self.execute([Chunk("prompt", tokens, 0, self.blocks(0, num_tokens), GREEDY)]).elapsed_s
