"""The transport by which blocks come from another engine."""

import pytest

from kvtransfer.transport_choice import TransportError, choose
from mesh.transports import SHM, TCP
from mesh.wire.transfers import MemoryRef

REF = MemoryRef("local", "/proc/1/fd/1", 1, "")


@pytest.mark.parametrize(
    ("setting", "memory", "host", "can_open", "transport"),
    [
        ("auto", REF, "local", True, SHM),
        ("auto", REF, "local", False, TCP),
        ("auto", REF, "elsewhere", True, TCP),
        ("auto", None, "local", True, TCP),
        ("shm", REF, "local", True, SHM),
        ("tcp", REF, "local", True, TCP),
    ],
)
def test_the_fastest_transport_that_works_is_chosen(setting, memory, host, can_open, transport):
    assert choose(setting, memory, host, lambda _: can_open) == transport


@pytest.mark.parametrize("memory", [REF, None])
def test_demanding_the_impossible_is_refused(memory):
    with pytest.raises(TransportError, match="cannot be mapped here; use auto or tcp"):
        choose("shm", memory, "elsewhere", lambda _: True)
