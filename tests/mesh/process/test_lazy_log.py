import io
import json
import subprocess
import sys

import structlog

from mesh.process import logs
from mesh.process.lazy_log import LazyLog


def test_lines_are_named_after_the_module_that_writes_them(tmp_path):
    file = tmp_path / "x.log"
    try:
        logs.configure("x", "info", file)
        LazyLog().warning("hello", number=1)
    finally:
        logs.configure("x", "info", terminal=io.StringIO())
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    told = json.loads(file.read_text())
    assert (told["logger"], told["message"], told["number"]) == (__name__, "hello", 1)


def test_commands_do_not_load_what_they_do_not_log_with():
    heavy = ("structlog", "psutil", "httpx", "pydantic", "uvloop", "matplotlib", "jinja2")
    loading = (
        "import sys; import mesh.cli.entry as entry; entry.command_parser(['top']); "
        "import mesh.cli.cluster, mesh.report, router.cli.top.app; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", loading], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.strip() == "[]"
