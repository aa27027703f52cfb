"""Figures as JSON files, and where they come from: the commit, the command and the machine, written beside them."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from engines.profiling.store import cpu_model

UNKNOWN = "unknown"
SOURCES = ("*.py", "*.toml")


def write_json(path: Path | None, figures: object) -> None:
    """``figures`` may hold dataclasses, structs and paths. Folders that are missing are made. No path: nothing."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(figures, enc_hook=str)) + b"\n")


def write_results(path: Path, results: Mapping[Any, object]) -> None:
    """Write each case with its result, and where they come from. Cases hold their seeds."""
    rows = [{"case": case, "result": result} for case, result in results.items()]
    write_json(path, {"origin": origin_here(), "results": rows})


@dataclass(frozen=True, slots=True)
class Origin:
    """``commit`` ends with ``+`` and a digest of what the tree has otherwise; it is `UNKNOWN` outside a repository."""

    commit: str
    command: str
    cpu: str
    num_cores: int


def origin_here() -> Origin:
    """The origin of what this process measures. It runs in the folder of the repository, as all benches do."""
    command = shlex.join(["python", "-m", _module(), *sys.argv[1:]])
    return Origin(commit_of(Path.cwd()), command, cpu_model(), os.cpu_count() or 1)


def commit_of(root: Path) -> str:
    """Name the state of the sources in a folder."""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", *SOURCES) + _git(root, "diff", "HEAD", "--", *SOURCES)
    if not commit:
        return UNKNOWN
    return f"{commit}+{sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


def _git(root: Path, *arguments: str) -> str:
    try:
        found = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec is not None else Path(sys.argv[0]).name
