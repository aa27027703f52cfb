"""A reader of pages."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """What it leaves running is stopped. Its runtime folder is short: paths of Unix sockets may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mesh", dir="/tmp") as runtime:
        one = Reader(tmp_path, Path(runtime))
        yield one
        one.stop()
