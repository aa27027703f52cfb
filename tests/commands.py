"""Runs commands of ``mesh`` in the process of a test: one of its own would import for nearly all of its time."""

import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from mesh.cli import main


def run_here(
    *arguments: str, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command that starts nothing and ends by itself, in a folder, with more in the environment."""
    out, errors = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.chdir(folder or Path.cwd())
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        try:
            code = main(arguments)
        except SystemExit as end:  # as the parser of arguments ends
            code = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())
