"""Makes a model ready in a process of its own: to fetch and to convert weights takes a core for a while."""

import subprocess
import sys

from engines.models.errors import ModelError
from engines.models.store import prepared_dir

DEADLINE_S = 3600.0


def prepare_beside(reference: str) -> None:
    """Nothing if it is ready. Raise `ModelError` if it cannot be had."""
    try:
        prepared_dir(reference)
    except ModelError:
        command = [sys.executable, "-m", "engines.models", "prepare", reference]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ModelError(f"model {reference} was not fetched and converted in {DEADLINE_S:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise ModelError(said[-1].removeprefix("mesh: ")) from None
