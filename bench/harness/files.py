"""Figures as JSON files."""

from pathlib import Path

import msgspec


def write_json(path: Path | None, figures: object) -> None:
    """``figures`` may be of dataclasses and structs. Folders that are missing are made. No path: nothing is written."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
