"""A cache, a tokenizer, a wheel and a model folder, all tiny."""

import base64
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from engines.models.cache import Cache
from tests.engines.models.tiny import (
    CONTEXT,
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    LAYERS,
    MERGES,
    SPECIAL,
    TEMPLATE,
    byte_level_vocabulary,
)

WriteWheel = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def byte_level() -> tokenizers.Tokenizer:
    vocabulary = {token: number for number, token in enumerate(byte_level_vocabulary())}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer


@pytest.fixture
def write_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteWheel:
    """Makes a wheel the only thing that pip finds."""
    shop = tmp_path / "shop"
    shop.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))

    def write(member: str, content: bytes, recorded: bytes | None = None) -> Path:
        digest = hashlib.sha256(content if recorded is None else recorded).digest()
        text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        path = shop / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, content)
            archive.writestr(
                "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
            )
            wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            archive.writestr("tiny_model-1.0.dist-info/WHEEL", wheel)
            archive.writestr("tiny_model-1.0.dist-info/RECORD", f"{member},sha256={text},{len(content)}\n")
        return path

    return write


@pytest.fixture
def model_folder(tmp_path: Path, byte_level: tokenizers.Tokenizer) -> Path:
    """A safetensors folder whose weights nobody reads."""
    folder = tmp_path / "folder"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": 269,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    byte_level.save(str(folder / "tokenizer.json"))
    return folder
