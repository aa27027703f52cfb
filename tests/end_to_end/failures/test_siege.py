"""What must hold while somebody attacks: an attack of some classes, and the short form at night."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.errors import EXIT_FAILURE
from tests.seeds import is_night
from tests.tools.harm.__main__ import PROGRAMMES

pytestmark = pytest.mark.timeout(420)

# Others send bodies, which tests/router/api sends to a gateway in the process of a test.
BY_DAY = frozenset(["wire", "files", "floods", "readers", "http", "stops"])


def test_nothing_that_comes_from_outside_stops_the_mesh(tmp_path: Path):
    """How long the witness waits is the siege's to say, on a machine that is quiet: nothing here hangs on it."""
    out = tmp_path / "rows.json"
    short = [one for one in reversed(PROGRAMMES["siege"].HARMS) if one.in_short]
    one_of_each = {one.family: one.name for one in short if is_night() or one.family in BY_DAY}
    assert one_of_each.keys() >= BY_DAY
    chosen = [] if is_night() else ["--only", *one_of_each.values()]
    command = [sys.executable, "-m", "tests.tools.harm", "siege", "--short", "--seed", "1", "--json", str(out), *chosen]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, EXIT_FAILURE), f"{done.stdout}\n{done.stderr}"
    rows = {row["name"]: row for row in json.loads(out.read_text())["rows"]}
    assert rows.keys() >= set(one_of_each.values())
    assert {name: row["honest"]["problems"] for name, row in rows.items() if row["honest"]["problems"]} == {}
    assert {name: row["broken"] for name, row in rows.items() if row["broken"]} == {}
    assert {name: row["restarted"] for name, row in rows.items() if row["restarted"]} == {}
    assert {name: row["wrong"] for name, row in rows.items() if row["wrong"]} == {}
