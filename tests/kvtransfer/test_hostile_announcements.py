"""Whatever comes as the first frame of blocks that NCCL moves, the answer is a reason and no exception."""

import contextlib

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtransfer.gpu.nccl_transport import NcclTransport
from kvtransfer.gpu.tickets import REMEMBERED, Announcement
from kvtransfer.protocol import ImportBlocks
from mesh.wire.transfers import Blocks

FIELDS = {"life": "a@1", "number": 1, "unique_id": b"\0" * 128, "ticket": 1, "recent": [[1, 2]]}


class NoDevice:
    device = property(lambda self: self)

    def stream(self):
        return None


def take(head):
    job = ImportBlocks("t", "s", "nccl", "peer", None, Blocks("t", 0, 0, 1, [0], [0], []), [head], [0])
    return NcclTransport(NoDevice(), None, None).import_blocks(job).ok


@pytest.mark.parametrize(
    "changed",
    [
        {"number": -1},
        {"number": 2**60},
        {"ticket": -1},
        {"recent": [[1, -2]]},
        {"recent": [[1, 2]] * (REMEMBERED + 1)},
        {"unique_id": b"\0" * 2000},
        {"life": "x" * 2000},
        {"recent": None},
    ],
)
def test_what_no_sender_announces_is_refused(changed):
    assert take(msgpack.packb({**FIELDS, **changed})) is False


@pytest.mark.parametrize("head", [b"\x81\xa4life\xa2\xff\xff", b"\x81\xa1x" + b"\x91" * 100_000, b"\xc1"])
def test_what_the_decoder_stumbles_over_is_refused(head):
    assert take(head) is False


@given(st.binary(min_size=1, max_size=100))
def test_any_bytes(head):
    with contextlib.suppress(Exception):
        msgspec.msgpack.decode(head, type=Announcement)
        return
    assert take(head) is False
