"""How long a decode step takes on a GPU, beside the time to read weights and KV once from its memory.

    python -m bench.engine.gpu_decode [--device cuda:0] [--requests 32] [--context 1024] [--json FILE]

Llama-2-7B's shape with random weights, bfloat16. The floor is bytes of weights (but the embeddings) and of KV, over the
bandwidth of a plain copy, of which each byte counts twice. ``--device cpu`` takes a small model: a smoke test.
"""

import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.engine.under_test import BLOCK_SIZE, EngineUnderTest
from bench.harness.arguments import script_parser
from bench.harness.files import write_json
from bench.harness.machine import timed
from bench.models.llama_config import LlamaShape
from bench.models.random_llama import LLAMA2_7B, SMALL, write_random_llama
from bench.transfer.speed import device_copy

WARM_UP, STEPS, COPIES = 5, 20, 6
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
    blocks = requests * -(-context // BLOCK_SIZE)
    with tempfile.TemporaryDirectory() as name:
        folder = write_random_llama(Path(name), shape, "bfloat16", device)
        engine = EngineUnderTest(folder, "bfloat16", blocks * BLOCK_SIZE, device=device)
    times = [engine.decode(requests, context) for _ in range(WARM_UP + STEPS)][WARM_UP:]
    kv_bytes = blocks * engine.block_bytes
    floor_s = (weight_bytes(shape) + kv_bytes) / bandwidth(device)
    return Decode(1e3 * statistics.median(times), 1e3 * floor_s, weight_bytes(shape), kv_bytes)


def bandwidth(device: str) -> float:
    """Bytes a second that the fastest plain copy reads and writes."""
    num_bytes = COPY_BYTES.get(device, 2**31)
    copy = device_copy(device, num_bytes)
    return 2 * num_bytes / min(timed(lambda: copy(num_bytes)) for _ in range(COPIES))


def main() -> None:
    parser = script_parser("bench.engine.gpu_decode", __doc__, json=True)
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu for a smoke test (default: cuda:0)")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    options = parser.parse_args()
    shape = SMALL if options.device == "cpu" else LLAMA2_7B
    decode = measure(options.device, shape, options.requests, options.context)
    print(f"step {decode.step_ms:.2f} ms, floor {decode.floor_ms:.2f} ms: {decode.ratio:.2f}x")
    write_json(options.json, asdict(decode) | {"ratio": decode.ratio})


if __name__ == "__main__":
    main()
