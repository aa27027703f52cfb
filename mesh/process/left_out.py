"""Leaves out packages that a library imports if they are there, and that no process of a mesh wants of it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

COLOURS = "rich"  # with which structlog would write stack traces: 60 ms of a start


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Whoever imports one of them meanwhile is told that it is not installed."""
    before = {name: sys.modules[name] for name in packages if name in sys.modules}
    sys.modules.update(dict.fromkeys(packages))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in packages:
            del sys.modules[name]
        sys.modules.update(before)
