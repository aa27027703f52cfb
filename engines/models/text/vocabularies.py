"""Compares what the tokens of two models stand for."""

from pathlib import Path

from engines.models.files.model_config import ModelConfig
from engines.models.text.tokenizer_file import load_backend


def why_not_alike(folder: Path, other: Path) -> str | None:
    """Return why the tokens of one prepared model are not those of the other; None if they are. Raise `ModelError` if
    they cannot be read.
    """
    sizes = [ModelConfig.load(one).vocab_size for one in (folder, other)]
    if sizes[0] != sizes[1]:
        return f"it has {sizes[1]} tokens, and not {sizes[0]}"
    ours, theirs = (load_backend(one).get_vocab() for one in (folder, other))
    if ours == theirs:
        return None
    token = min([token for token, _ in ours.items() ^ theirs.items()])
    return f"token {token!r} is {theirs.get(token, 'none')} there, and {ours.get(token, 'none')} here"
