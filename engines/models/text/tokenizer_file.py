"""Reads ``tokenizer.json`` with the library that made it."""

from pathlib import Path

import tokenizers

from engines.models.errors import ModelError


def load_backend(folder: Path) -> tokenizers.Tokenizer:
    """Read that of a prepared model's folder, which neither cuts nor pads. Raise `ModelError`."""
    path = folder / "tokenizer.json"
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{path}: {' '.join(str(error).split())}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend
