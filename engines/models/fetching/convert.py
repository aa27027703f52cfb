"""Turns a GGUF file into a folder that Hugging Face tools, engines and gateways read."""

import json
from pathlib import Path

import numpy as np

from engines.models.errors import ModelError
from engines.models.files.block_kinds import BLOCKS_FILE
from engines.models.files.gguf_file import GgufModel
from engines.models.files.safetensors_writer import SafetensorsWriter
from engines.models.progress import Progress


def convert_gguf(source: Path, folder: Path, progress: Progress) -> None:
    """Write weights, configuration and tokenizer of the GGUF file ``source`` into ``folder``.

    Weights are written as float32, for everybody, and those in blocks that engines read as they are once more so.
    """
    progress("reading the GGUF file")
    model = GgufModel(source)
    _write_json(folder / "config.json", model.config())
    _write_json(folder / "generation_config.json", model.generation_config())
    _write_weights(model, folder / "model.safetensors", progress)
    _write_blocks(model, folder / BLOCKS_FILE)
    progress("writing the tokenizer")
    _write_tokenizer(source, folder)


def _write_weights(model: GgufModel, path: Path, progress: Progress) -> None:
    shapes = model.shapes()
    with SafetensorsWriter(path, shapes) as writer:
        for number, (name, tensor) in enumerate(model.tensors()):
            progress("de-quantising the weights", number / len(shapes))
            writer.write(name, tensor)


def _write_blocks(model: GgufModel, path: Path) -> None:
    shapes = model.block_shapes()
    if shapes:
        with SafetensorsWriter(path, shapes, np.uint8, model.block_kinds()) as writer:
            for name, rows in model.blocks():
                writer.write(name, rows)


def _write_tokenizer(source: Path, folder: Path) -> None:
    # Imported here: it is slow, and only a conversion needs it.
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    fault: Exception | None = None
    for kind in (AutoTokenizer, PreTrainedTokenizerFast):  # the first wants to know the model's architecture, too
        try:
            tokenizer = kind.from_pretrained(source.parent, gguf_file=source.name)
        except (ValueError, KeyError, OSError) as error:
            fault = fault or error
        else:
            tokenizer.save_pretrained(folder, save_jinja_files=False)
            return
    raise ModelError(f"{source}: its tokenizer cannot be converted: {str(fault).splitlines()[0]}") from fault


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
