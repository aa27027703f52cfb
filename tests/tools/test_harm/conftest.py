"""What tests of harm share."""

import resource
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def own_memory_limit() -> Iterator[None]:
    """Tests watch, and so limit, the process that they run in; what comes after them needs its memory."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)
