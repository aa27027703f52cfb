"""What must hold while processes die and messages are lost: a part of the short form, and all of it at night."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.errors import EXIT_FAILURE
from tests.seeds import is_night
from tests.tools.harm.__main__ import PROGRAMMES, parse

pytestmark = pytest.mark.timeout(300)

BY_DAY = ("--only", "kill-in-transfer", "lose-5-percent", "corrupt")  # they share a mesh


def test_no_request_is_lost_whatever_dies(tmp_path: Path):
    """How long pauses are is the harness's to say, on a machine that is quiet: nothing here hangs on it."""
    out = tmp_path / "rows.json"
    arguments = ["chaos", "--short", "--seed", "1", *(() if is_night() else BY_DAY)]
    command = [sys.executable, "-m", "tests.tools.harm", *arguments, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, EXIT_FAILURE), f"{done.stdout}\n{done.stderr}"
    rows = {row["name"]: row for row in json.loads(out.read_text())["rows"]}
    assert rows.keys() == {one.name for [one] in PROGRAMMES["chaos"].plan(parse(arguments))}
    assert all(row["honest"]["requests"] for row in rows.values())
    assert [row["honest"]["problems"] for row in rows.values() if row["honest"]["problems"]] == []
    assert [row["broken"] for row in rows.values() if row["broken"]] == []
