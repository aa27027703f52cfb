"""vLLM's pooling executor on one batch: texts are lines of JSON on standard input, vectors come back in hex.

Run with the interpreter that has vLLM: FOLDER TASK MAX_CONTEXT.
"""

import json
import os
import sys
from pathlib import Path

from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, Draw
from engines.vllm_engine.pooled import PoolerSettings, VllmPooler
from mesh.topology.schema import Task
from mesh.wire.requests import Pooling, Sampling
from mesh.wire.transfers import KVShape


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print
    folder, task, max_context = Path(sys.argv[1]), Task(sys.argv[2]), int(sys.argv[3])
    config = ModelConfig.load(folder)
    settings = PoolerSettings(
        str(folder), task, "float32", max_context, most_tokens=512, most_requests=16, kv_memory_bytes=2**24,
        generates=config.encoder is None, has_segments=config.encoder is not None and config.encoder.num_segments > 1,
        options={"enforce_eager": True},
    )  # fmt: skip
    pooler = VllmPooler("texts", KVShape(1, 1, 32, 32, "float32"), settings)
    chunks = [chunk_of(number, *json.loads(line)) for number, line in enumerate(sys.stdin)]
    for batch in (chunks[:1], chunks):  # a second one finds nothing of the first
        results = pooler.execute(Batch("texts", batch)).chunks
    json.dump([(result.vector or b"").hex() for result in results], answers)
    answers.flush()
    os._exit(0)  # nothing to save, and vLLM takes its time


def chunk_of(number: int, tokens: list[int], first_tokens: int) -> Chunk:
    draw = Draw(Sampling(1, 0), tokens, len(tokens), len(tokens), "", Pooling(first_tokens))
    return Chunk(str(number), tokens, 0, [], draw)


if __name__ == "__main__":
    main()
