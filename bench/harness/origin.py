"""Tells where figures come from: the commit, the command and the machine, written beside them."""

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from engines.profiling.store import cpu_model

UNKNOWN = "unknown"
SOURCES = ("*.py", "*.toml")


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
