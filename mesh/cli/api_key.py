"""The key that commands show to gateways: from the environment or a file, because everybody sees arguments in `ps`."""

import argparse
import os
from pathlib import Path

from mesh.errors import UserError

VARIABLES = ("MESHSERVE_API_KEY", "OPENAI_API_KEY")
MAX_BYTES = 4096


def add_api_key(group: "argparse._ActionsContainer") -> None:
    what = f"file with the key to show (default: the value of {VARIABLES[0]} or {VARIABLES[1]})"
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help=what)


def bearer(file: Path | None = None) -> dict[str, str]:
    """The header with the key; nothing if there is none. Raise `UserError` if the file cannot be read."""
    known = [os.environ[name] for name in VARIABLES if os.environ.get(name)] if file is None else [_read(file)]
    key = known[0].strip() if known else ""
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError("the API key is not one line of printable characters; write nothing else into its file")
    return {"authorization": f"Bearer {key}"}


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MAX_BYTES)
    except OSError as error:
        raise UserError(f"--api-key-file: {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--api-key-file: {file}: is no text; write the key into it") from None
    if not text.strip():
        raise UserError(f"--api-key-file: {file}: is empty; write the key into it")
    return text
