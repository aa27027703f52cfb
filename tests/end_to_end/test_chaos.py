"""The short form of the chaos harness: what must hold while processes die, stop, and lose messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.chaos.__main__ import choose
from mesh.errors import EXIT_FAILURE

pytestmark = pytest.mark.timeout(300)


def test_no_request_is_lost_whatever_dies(tmp_path: Path):
    """How long pauses are is the harness's to say, on a machine that is quiet: nothing here hangs on it."""
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "bench.chaos", "--quick", "--seed", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, EXIT_FAILURE), f"{done.stdout}\n{done.stderr}"
    rows = {row["scenario"]: row["tally"] for row in json.loads(out.read_text())["rows"]}
    assert rows.keys() == {one.name for one in choose(None, is_quick=True)}
    assert all(tally["requests"] for tally in rows.values())
    assert [tally["problems"] for tally in rows.values() if tally["problems"]] == []
    assert [name for name, tally in rows.items() if tally["failed"] or tally["wrong"]] == []
