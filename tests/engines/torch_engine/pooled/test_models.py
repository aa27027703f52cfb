"""Services that embed and score, through the executor, against transformers and sentence-transformers' rules."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.scheduling.batch import Batch, Chunk, ChunkResult, Draw
from engines.torch_engine.executor import TorchExecutor, TorchService
from engines.torch_engine.shape import kv_shape
from kvtransfer.layout import block_bytes
from mesh.topology.schema import Task
from mesh.wire.requests import POOLED_TOKEN, FailureCode, Pooling, Sampling
from tests.engines.torch_engine.conftest import write_model
from tests.engines.torch_engine.pooled.conftest import write_encoder

BLOCK, NUM_BLOCKS = 8, 64
MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "last": "pooling_mode_lasttoken"}


def write_modules(folder: Path, mode: str, *, normalises: bool) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalises else [])]
    modules = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" * (index > 0),
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({MODES[mode]: True}))


def executor_of(folder: Path, task: Task) -> TorchExecutor:
    config = ModelConfig.load(folder)
    page_bytes = block_bytes(kv_shape(config, "float32", BLOCK))
    memory = bytearray(NUM_BLOCKS * page_bytes)
    return TorchExecutor([TorchService("texts", folder, config, "float32", BLOCK, memory, page_bytes, task)])


def chunk_of(text: Sequence[int], first_block: int, start: int = 0, end: int | None = None, pair: int = 0) -> Chunk:
    """Tokens from ``start`` to before ``end`` of a text."""
    end = len(text) if end is None else end
    blocks = range(first_block, first_block - (-len(text) // BLOCK))
    draw = Draw(Sampling(1, 0), text, len(text), end, "r", Pooling(pair)) if end == len(text) else None
    return Chunk("r", text[start:end], start, blocks, draw)


def results(executor: TorchExecutor, chunks: Sequence[Chunk]) -> Sequence[ChunkResult]:
    return executor.execute(Batch("texts", chunks)).chunks


def vectors(executor: TorchExecutor, texts: Sequence[list[int]]) -> torch.Tensor:
    chunks, first = [], 0
    for text in texts:
        chunks.append(chunk_of(text, first))
        first -= -len(text) // BLOCK
    found = results(executor, chunks)
    assert all(result.token == POOLED_TOKEN for result in found)
    return torch.stack([torch.from_numpy(np.frombuffer(result.vector or b"", "<f4").copy()) for result in found])


@torch.inference_mode()
def pooled(theirs: Any, text: list[int], mode: str, *, normalises: bool) -> torch.Tensor:
    hidden = theirs(torch.tensor([text])).last_hidden_state[0]
    vector: torch.Tensor = {"cls": hidden[0], "mean": hidden.mean(0), "last": hidden[-1]}[mode]
    return functional.normalize(vector, dim=-1) if normalises else vector


@pytest.mark.parametrize(("mode", "normalises"), [("cls", True), ("mean", True), ("mean", False)])
def test_an_encoders_vectors_are_pooled_as_its_files_say(
    tmp_path: Path, mode: str, normalises: bool, texts: list[list[int]]
):
    theirs = write_encoder(tmp_path, "bert")
    write_modules(tmp_path, mode, normalises=normalises)
    wanted = torch.stack([pooled(theirs, text, mode, normalises=normalises) for text in texts])
    torch.testing.assert_close(vectors(executor_of(tmp_path, Task.EMBED), texts), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_decoders_vectors_are_pooled_as_its_files_say(tmp_path: Path, mode: str, texts: list[list[int]]):
    theirs = write_model(tmp_path, "qwen3")
    write_modules(tmp_path, mode, normalises=True)
    wanted = torch.stack([pooled(theirs.model, text, mode, normalises=True) for text in texts])
    torch.testing.assert_close(vectors(executor_of(tmp_path, Task.EMBED), texts), wanted, atol=1e-4, rtol=1e-4)


def test_a_decoder_without_files_of_its_pooling_normalises_the_last_token(tmp_path: Path, texts: list[list[int]]):
    theirs = write_model(tmp_path, "llama3")
    wanted = torch.stack([pooled(theirs.model, text, "last", normalises=True) for text in texts])
    torch.testing.assert_close(vectors(executor_of(tmp_path, Task.EMBED), texts), wanted, atol=1e-4, rtol=1e-4)


def test_a_decoder_that_was_saved_without_its_head_is_loaded(tmp_path: Path, texts: list[list[int]]):
    theirs = write_model(tmp_path, "qwen3").model
    theirs.save_pretrained(tmp_path)  # its tensors have no name of the model before theirs
    wanted = torch.stack([pooled(theirs, text, "last", normalises=True) for text in texts])
    torch.testing.assert_close(vectors(executor_of(tmp_path, Task.EMBED), texts), wanted, atol=1e-4, rtol=1e-4)


def test_a_prompt_whose_last_token_is_pooled_may_come_in_chunks(tmp_path: Path, texts: list[list[int]]):
    write_model(tmp_path, "qwen3")
    executor, text = executor_of(tmp_path, Task.EMBED), texts[2]
    [whole] = results(executor, [chunk_of(text, 0)])
    [first] = results(executor, [chunk_of(text, 20, 0, 24)])
    [last] = results(executor, [chunk_of(text, 20, 24)])
    assert first == ChunkResult()
    one, other = (np.frombuffer(result.vector or b"", "<f4") for result in (whole, last))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_pair_has_one_score(tmp_path: Path, texts: list[list[int]]):
    theirs = write_encoder(tmp_path, "bert", scores=True)
    text = texts[4]
    [result] = results(executor_of(tmp_path, Task.SCORE), [chunk_of(text, 0, pair=10)])
    kinds = torch.tensor([[0] * 10 + [1] * (len(text) - 10)])
    with torch.inference_mode():
        wanted = torch.sigmoid(theirs(torch.tensor([text]), token_type_ids=kinds).logits)
    np.testing.assert_allclose(np.frombuffer(result.vector or b"", "<f4"), wanted[0].numpy(), atol=1e-5)


def test_what_is_not_a_number_fails_its_request_alone(tmp_path: Path, texts: list[list[int]]):
    import transformers

    theirs = write_encoder(tmp_path, "bert")
    assert isinstance(theirs, transformers.BertModel)
    with torch.no_grad():
        theirs.embeddings.word_embeddings.weight[96] = float("nan")
    theirs.save_pretrained(tmp_path)
    bad, good = results(executor_of(tmp_path, Task.EMBED), [chunk_of([5, 96], 0), chunk_of([5, 6], 1)])
    assert bad.unsampled is not None
    assert bad.unsampled.code is FailureCode.STEP
    assert good.vector is not None


@pytest.mark.parametrize(
    ("scores", "task", "message"),
    [
        (False, Task.GENERATE, "'bert' models make no tokens; set task = \"embed\" for its service"),
        (False, Task.SCORE, "it has no head that makes one number of a pair; set task = \"embed\""),
        (True, Task.EMBED, "it has a head that scores pairs; set task = \"score\" for its service"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_do_the_task_is_refused(tmp_path: Path, scores: bool, task: Task, message: str):
    write_encoder(tmp_path, "bert", scores=scores)
    with pytest.raises(ModelError, match=message):
        executor_of(tmp_path, task)
