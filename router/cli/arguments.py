"""Words after a command: perhaps a topology first, then what the command is about."""

from collections.abc import Sequence
from pathlib import Path

from mesh.cli.arguments import DEFAULT_TOPOLOGY


def split_topology(words: Sequence[str]) -> tuple[Path, list[str]]:
    """The first word is a topology if it is a file or is called like one; otherwise the default one is meant."""
    if words and (words[0].endswith(".toml") or Path(words[0]).is_file()):
        return Path(words[0]), list(words[1:])
    return DEFAULT_TOPOLOGY, list(words)
