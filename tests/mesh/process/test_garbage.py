"""Modules that are imported for good are no garbage, and nobody looks whether they are."""

import gc
import subprocess
import sys

import pytest

from mesh.process.garbage import importing


@pytest.mark.parametrize("was_enabled", [True, False])
def test_nothing_is_collected_while_modules_are_imported(was_enabled: bool):
    (gc.enable if was_enabled else gc.disable)()
    try:
        with importing():
            assert not gc.isenabled()
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("program", ["engines", "router", "router.placement"])
def test_every_process_imports_what_it_runs_so(program: str):
    code = f"""
import gc, runpy, sys
from mesh.process import process
def look(*_, **__):
    sys.exit(0 if gc.get_freeze_count() > 20_000 and gc.isenabled() else f"{{gc.get_freeze_count()}} are frozen")
process.run_process = look
runpy.run_module({program!r}, run_name="__main__")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
