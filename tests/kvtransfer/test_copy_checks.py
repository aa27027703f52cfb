"""Whether blocks are what the sender meant: before a copy, after it, and at the destination."""

import zlib
from collections.abc import Callable, Sequence
from time import perf_counter

import pytest

from kvtransfer.copy_checks import checksum_fault, checksums, copy_unchanged, frames_of, imported
from kvtransfer.protocol import ImportBlocks
from mesh.wire.transfers import Blocks


class Counters:
    """Generations of four blocks."""

    def __init__(self) -> None:
        self.of = [0, 0, 7, 0]

    def __len__(self) -> int:
        return len(self.of)

    def is_unchanged(self, blocks: Sequence[int], generations: Sequence[int]) -> bool:
        return [self.of[block] for block in blocks] == list(generations)


def job(blocks: Sequence[int] = (1, 2), generations: Sequence[int] = (0, 7), sums: Sequence[int] = ()) -> ImportBlocks:
    message = Blocks("t", 3, 0, 8, list(blocks), list(generations), list(sums))
    return ImportBlocks("t", "tiny", "shm", "prefill", None, message, (), [5, 6])


def copy(counters: Counters, what: ImportBlocks, during: Callable[[], None] = lambda: None) -> str | None:
    return copy_unchanged(what, counters, during)  # type: ignore[arg-type]


def test_unchanged_blocks_are_copied_once():
    copies: list[int] = []
    assert copy(Counters(), job(), lambda: copies.append(1)) is None
    assert copies == [1]


@pytest.mark.parametrize(
    ("blocks", "generations"), [((1, 4), (0, 0)), ((-1, 1), (0, 0)), ((1, 2), (0,)), ((), (0,))], ids=str
)
def test_blocks_that_there_are_not_are_never_read(blocks: Sequence[int], generations: Sequence[int]):
    def read() -> None:
        raise AssertionError("it was read")

    assert copy(Counters(), job(blocks, generations), read) == "block ids or generations make no sense"


def test_blocks_that_were_reused_are_not_copied():
    copies: list[int] = []
    assert copy(Counters(), job(generations=(0, 6)), lambda: copies.append(1)) == "blocks were reused before the copy"
    assert copies == []


def test_a_copy_during_which_a_block_is_reused_does_not_count():
    counters = Counters()

    def reuse() -> None:
        counters.of[2] += 1

    assert copy(counters, job(), reuse) == "blocks were reused during the copy"


def test_payload_has_a_frame_of_the_right_size_for_each_block():
    frames = frames_of(job(), [bytes(8), bytearray(8)], 8)
    assert isinstance(frames, list)
    assert [len(frame) for frame in frames] == [8, 8]
    assert frames_of(job(), [bytes(8)], 8) == "1 payload frames for 2 blocks"
    assert frames_of(job(), [bytes(8), bytes(7)], 8) == "a payload frame of 7 bytes, want 8"


def test_frames_are_counted_in_bytes_whatever_they_hold():
    wide = memoryview(bytes(16)).cast("d")
    frames = frames_of(job(), [wide, wide], 16)
    assert isinstance(frames, list)


def test_checksums_are_compared_where_the_sender_gave_any():
    contents = [b"one", b"two"]
    right = [zlib.crc32(content) for content in contents]
    assert checksums(contents) == right
    assert checksum_fault(job(sums=right), lambda: contents) is None
    assert checksum_fault(job(sums=right), lambda: [b"one", b"2"]) == "checksums differ"
    assert checksum_fault(job(sums=right[:1]), lambda: contents) == "checksums differ"


def test_nothing_is_read_for_checksums_that_were_not_given():
    def read() -> list[bytes]:
        raise AssertionError("it was read")

    assert checksum_fault(job(), read) is None


@pytest.mark.parametrize("fault", [None, "checksums differ"])
def test_the_answer_tells_whether_and_how_long(fault: str | None):
    answer = imported(job(), fault, perf_counter() - 1.0)
    assert (answer.seq, answer.ok) == (3, fault is None)
    assert answer.elapsed_s >= 1.0
