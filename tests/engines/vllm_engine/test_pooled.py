"""vLLM's pooling runner makes the vectors and scores that the torch engine makes, of the same models."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mesh.topology.schema import Task
from tests.engines.contract.computers import FOLDER, ROOT
from tests.engines.contract.conftest import vllm_python
from tests.engines.torch_engine.pooled.conftest import write_encoder
from tests.engines.torch_engine.pooled.test_models import chunk_of, executor_of, results, write_modules

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]
PAIRS = [([5, 6, 7, 8, 9], 2), ([11], 0), ([*range(2, 42)], 17), ([3, 4], 1)]  # tokens, those of a pair's first text
TEXTS = [(tokens, 0) for tokens, _ in PAIRS]
Texts = Sequence[tuple[list[int], int]]


def by_vllm(folder: Path, task: Task, texts: Texts) -> np.ndarray:
    command = [str(vllm_python()), "-m", "tests.engines.vllm_engine.pooled_child", str(folder), str(task), "64"]
    done = subprocess.run(
        command, input="\n".join(json.dumps(text) for text in texts), capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return np.stack([np.frombuffer(bytes.fromhex(vector), "<f4") for vector in json.loads(done.stdout)])


def by_torch(folder: Path, task: Task, texts: Texts) -> np.ndarray:
    chunks, first = [], 0
    for tokens, pair in texts:
        chunks.append(chunk_of(tokens, first, pair=pair))
        first -= -len(tokens) // 8
    return np.stack([
        np.frombuffer(one.vector or b"", "<f4") for one in results(executor_of(folder, task), chunks)
    ])  # fmt: skip


def test_an_encoders_vectors(tmp_path: Path):
    write_encoder(tmp_path, "bert-for-vllm")
    write_modules(tmp_path, "mean", normalises=True)
    ours = by_torch(tmp_path, Task.EMBED, TEXTS)
    np.testing.assert_allclose(by_vllm(tmp_path, Task.EMBED, TEXTS), ours, atol=1e-4)


def test_scores_of_pairs(tmp_path: Path):
    write_encoder(tmp_path, "bert-for-vllm", scores=True)
    ours = by_torch(tmp_path, Task.SCORE, PAIRS)
    np.testing.assert_allclose(by_vllm(tmp_path, Task.SCORE, PAIRS), ours, atol=1e-4)


def test_a_decoders_vectors():
    ours = by_torch(FOLDER, Task.EMBED, TEXTS)
    np.testing.assert_allclose(by_vllm(FOLDER, Task.EMBED, TEXTS), ours, atol=1e-4)
