"""Processes import no packages that libraries use only if they are there."""

import subprocess
import sys

import pytest

from mesh.process.left_out import without


def test_a_package_that_is_left_out_is_not_found_until_the_end():
    before = sys.modules.get("rich")
    with without("rich"), pytest.raises(ImportError):
        import rich.console
    assert sys.modules.get("rich") is before
    import rich.console

    assert rich.console.Console


@pytest.mark.parametrize(
    ("program", "others"),
    [
        ("engines", ()),
        ("engines.models", ()),
        ("router", ("numpy",)),
        ("router.placement", ()),
    ],  # numpy is for vectors, which few services make
)
def test_no_process_imports_them(program: str, others: tuple[str, ...]):
    code = f"""
import runpy, sys
sys.argv = [{program!r}, "--help"]
try:
    runpy.run_module({program!r}, run_name="__main__")
finally:
    sys.stderr.write(" ".join(name for name in ("rich", "pygments", *{others!r}) if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
