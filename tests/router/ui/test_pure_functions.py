"""The page's own reckoning, run by Node where there is one that knows modules without being told."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node") or ""
LEAST = (20, 19)
SCRIPTS = sorted(Path(__file__).parent.glob("*.test.mjs"))


def is_new_enough() -> bool:
    if not NODE:
        return False
    told = subprocess.run([NODE, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return tuple(map(int, told.strip().removeprefix("v").split(".")[:2])) >= LEAST


@pytest.mark.skipif(not is_new_enough(), reason="there is no Node, or only an old one")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_what_the_page_works_out(script):
    run = subprocess.run([NODE, "--test", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
