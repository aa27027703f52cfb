"""Figures as JSON files."""

from pathlib import Path

import msgspec


def write_json(path: Path | None, figures: object) -> None:
    """``figures`` may hold dataclasses, structs and paths. Folders that are missing are made. No path: nothing."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(figures, enc_hook=str)) + b"\n")
