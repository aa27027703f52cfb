"""How long a decode step takes on a GPU, beside the time to read weights and KV once from its memory.

    python -m bench.engine.gpu_decode [--device cuda:0] [--requests 32] [--context 1024] [--json FILE]

Llama-2-7B's shape with random weights, bfloat16. The floor is bytes of weights (but the embeddings) and of KV, over the
bandwidth of a plain copy, of which each byte counts twice. ``--device cpu`` takes a small model: a smoke test.
"""

import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from bench.harness.arguments import add_json, script_parser
from bench.harness.files import write_json
from bench.models.random_llama import LLAMA2_7B, SMALL, LlamaShape, write_random_llama
from bench.transfer.gpu import copy_seconds
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.gpu_memory import open_gpu, pages_tensor
from engines.torch_engine.shape import kv_shape
from kvtransfer.gpu.device_memory import DeviceMemory
from kvtransfer.layout import PageLayout, block_bytes
from mesh.wire.requests import Sampling

BLOCK_SIZE = 16
GREEDY = Draw(Sampling(max_tokens=1, seed=0, temperature=0.0), (), 0, 0)
WARM_UP, STEPS = 5, 20
COPY_BYTES = {"cpu": 2**26}  # else 2 GiB


@dataclass(frozen=True, slots=True)
class Decode:
    step_ms: float
    floor_ms: float
    weight_bytes: int
    kv_bytes: int

    @property
    def ratio(self) -> float:
        return self.step_ms / self.floor_ms


def weight_bytes(shape: LlamaShape) -> int:
    """Bytes of the 16-bit weights that a step reads: all but the embeddings."""
    head_dim = shape.hidden // shape.heads
    attention = shape.hidden * head_dim * 2 * (shape.heads + shape.kv_heads)
    return 2 * (shape.layers * (attention + 3 * shape.hidden * shape.inner) + shape.vocab * shape.hidden)


def measure(device: str, shape: LlamaShape, requests: int, context: int) -> Decode:
    with tempfile.TemporaryDirectory() as name:
        folder = write_random_llama(Path(name), shape, "bfloat16", device)
        config = ModelConfig.load(folder)
        kv = kv_shape(config, "bfloat16", BLOCK_SIZE)
        blocks = -(-context // BLOCK_SIZE)
        layout = PageLayout.of([kv], requests * blocks)
        memory: bytearray | Tensor
        if device == "cpu":
            memory = bytearray(layout.num_pages * layout.page_bytes)
        else:
            memory = pages_tensor(DeviceMemory(layout, open_gpu(device)))
        service = TorchService("model", folder, config, "bfloat16", BLOCK_SIZE, memory, layout.page_bytes)
        executor = TorchExecutor([service], device)
    tables = [list(range(n * blocks, (n + 1) * blocks)) for n in range(requests)]
    batch = Batch("model", [Chunk(str(n), [5 + n], context - 1, table, GREEDY) for n, table in enumerate(tables)])
    times = [executor.execute(batch).elapsed_s for _ in range(WARM_UP + STEPS)][WARM_UP:]
    num_bytes = COPY_BYTES.get(device, 2**31)
    bandwidth = 2 * num_bytes / copy_seconds(device, num_bytes)
    kv_bytes = requests * blocks * block_bytes(kv)
    floor_s = (weight_bytes(shape) + kv_bytes) / bandwidth
    return Decode(1e3 * statistics.median(times), 1e3 * floor_s, weight_bytes(shape), kv_bytes)


def main() -> None:
    parser = script_parser("bench.engine.gpu_decode", __doc__)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu for a smoke test (default: cuda:0)")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    add_json(parser)
    options = parser.parse_args()
    shape = SMALL if options.device == "cpu" else LLAMA2_7B
    decode = measure(options.device, shape, options.requests, options.context)
    print(f"step {decode.step_ms:.2f} ms, floor {decode.floor_ms:.2f} ms: {decode.ratio:.2f}x")
    if options.json is not None:
        write_json(options.json, asdict(decode) | {"ratio": decode.ratio})


if __name__ == "__main__":
    main()
