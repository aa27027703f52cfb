"""Blocks in tiers: what is loaded is what was stored under that digest, or nothing."""

import os
import time

import pytest
from structlog.testing import capture_logs

from kvtransfer.gpu.device_memory import DeviceKVMemory, DeviceMemory
from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.tiers.block_file import name_of, space_of
from kvtransfer.tiers.folder import UNIT, ListedFolder, TierFolder
from kvtransfer.tiers.tier import BEFORE_S, Tier
from kvtransfer.tiers.tiered_blocks import TieredBlocks
from tests.kvtransfer.fake_device import FakeDevice, World
from tests.kvtransfer.test_offloaded import fill, read

PAGES = 6
DIGESTS = [bytes([number]) * 16 for number in range(PAGES)]
HOST_ONLY = [Tier.HOST]


@pytest.fixture(params=["host", "device"])
def memory(request, shape):
    layout = PageLayout.of([shape], PAGES)
    if request.param == "host":
        return KVMemory(PagedMemory(layout), shape)
    return DeviceKVMemory(DeviceMemory(layout, FakeDevice(World(), "gpu-0", has_nccl=False)), shape)


@pytest.fixture
def tiers(memory, shape, tmp_path):
    return TieredBlocks(memory, space_of("chat", "m", "float32", shape), {Tier.HOST: TierFolder(tmp_path / "t", 2**20)})


def store(tiers, blocks):
    used = [(DIGESTS[block], time.monotonic()) for block in blocks]
    stored, files = tiers.store([DIGESTS[block] for block in blocks], blocks, tiers.generations(blocks), used)
    tiers.store_below(files, used)
    return stored.uses


def load(tiers, digests, blocks, ticket=1):
    tiers.open_load(ticket)
    return tiers.load(ticket, digests, blocks)


def path_of(tiers, digest, tier=Tier.HOST):
    return next(tiers.folders[tier].path.glob(f"??/{name_of(tiers._space, digest)}"))


def test_what_is_loaded_is_what_was_stored(memory, tiers):
    rows = fill(memory, 1)
    assert store(tiers, [0, 1, 2])[Tier.HOST].num_blocks == 3
    fill(memory, 2)
    loaded = load(tiers, DIGESTS[:3], [5, 3, 4])
    assert loaded.num_blocks == 3
    assert loaded.uses[Tier.HOST].num_bytes == 3 * memory.layout.block_bytes
    assert (read(memory, [5, 3, 4]) == rows[:3]).all()


def test_a_block_that_gets_new_content_meanwhile_is_not_stored(memory, tiers):
    fill(memory, 1)
    generations = tiers.generations([0, 1])
    memory.take_page(1)
    assert tiers.store(DIGESTS[:2], [0, 1], generations, [])[0].uses[Tier.HOST].num_blocks == 1
    assert [tiers.find(digest) for digest in DIGESTS[:2]] == [Tier.HOST, None]


@pytest.mark.parametrize("fault", ["cut", "flipped", "header", "empty", "another"])
def test_a_damaged_file_is_as_none_and_goes(memory, tiers, fault):
    fill(memory, 1)
    store(tiers, [0, 1, 2])
    path = path_of(tiers, DIGESTS[1])
    content = bytearray(path.read_bytes())
    if fault == "another":
        content = bytearray(path_of(tiers, DIGESTS[2]).read_bytes())
    elif fault in ("flipped", "header"):
        content[-1 if fault == "flipped" else 3] ^= 1
    path.write_bytes(content[: {"cut": -10, "empty": 0}.get(fault, len(content))])
    loaded = load(tiers, DIGESTS[:3], [3, 4, 5])
    assert (loaded.num_blocks, loaded.uses[Tier.HOST].num_faults) == (1, 1)
    assert tiers.find(DIGESTS[1]) is None


def test_damaged_files_behind_a_damaged_one_go_with_it(memory, tiers):
    fill(memory, 1)
    store(tiers, [0, 1, 2])
    for digest in (DIGESTS[0], DIGESTS[2]):
        path_of(tiers, digest).write_bytes(b"")
    loaded = load(tiers, DIGESTS[:3], [3, 4, 5])
    assert (loaded.num_blocks, loaded.uses[Tier.HOST].num_faults) == (0, 2)
    assert [tiers.find(digest) for digest in DIGESTS[:3]] == [None, Tier.HOST, None]


def test_a_file_that_vanished_is_a_fault(memory, tiers):
    fill(memory, 1)
    store(tiers, [0])
    path_of(tiers, DIGESTS[0]).unlink()
    loaded = load(tiers, DIGESTS[:1], [3])
    assert (loaded.num_blocks, loaded.uses[Tier.HOST].num_faults) == (0, 1)


def test_nothing_is_written_by_a_load_that_was_stopped(memory, tiers):
    rows = fill(memory, 1)
    store(tiers, [0])
    tiers.open_load(1)
    tiers.stop(1)
    assert tiers.load(1, DIGESTS[:1], [3]).num_blocks == 0
    assert (read(memory, [3]) == rows[3]).all()
    tiers.stop(1)  # it is over


def test_what_was_read_too_late_tells_how_slow_the_tier_is(memory, tiers, monkeypatch):
    rows = fill(memory, 1)
    store(tiers, [0, 1])
    folder = tiers.folders[Tier.HOST]
    read_now = folder.read

    def read_late(name):
        tiers.stop(1)
        return read_now(name)

    monkeypatch.setattr(folder, "read", read_late)
    loaded = load(tiers, DIGESTS[:2], [3, 4])
    use = loaded.uses[Tier.HOST]
    assert (loaded.num_blocks, use.num_blocks, use.num_faults) == (0, 0, 0)
    assert use.num_bytes == memory.layout.block_bytes
    assert use.elapsed_s > 0.0
    assert (read(memory, [3, 4]) == rows[3:5]).all()


@pytest.mark.parametrize("other", [("code", "m", "float32"), ("chat", "n", "float32"), ("chat", "m", "int8")])
def test_blocks_of_other_services_models_and_dtypes_are_not_found(memory, shape, tiers, other):
    fill(memory, 1)
    store(tiers, [0])
    others = TieredBlocks(memory, space_of(*other, shape), tiers.folders)
    assert others.find(DIGESTS[0]) is None
    path = path_of(tiers, DIGESTS[0])
    disguised = path.parent.parent / name_of(others._space, DIGESTS[0])[:2] / name_of(others._space, DIGESTS[0])
    disguised.parent.mkdir(exist_ok=True)
    disguised.write_bytes(path.read_bytes())
    assert load(others, DIGESTS[:1], [3]).num_blocks == 0


@pytest.fixture
def with_disk(memory, tiers, tmp_path):
    folders = {**tiers.folders, Tier.DISK: ListedFolder(tmp_path / "disk", 2**20)}
    return TieredBlocks(memory, tiers._space, folders)


def test_what_left_the_first_tier_is_loaded_from_the_next(memory, with_disk):
    rows = fill(memory, 1)
    store(with_disk, [0, 1])
    assert store(with_disk, [2])[Tier.DISK].num_blocks == 2  # of the store before
    with_disk.folders[Tier.HOST].remove(path_of(with_disk, DIGESTS[0]).name)
    assert [with_disk.find(digest) for digest in DIGESTS[:4]] == [Tier.DISK, Tier.HOST, Tier.HOST, None]
    loaded = load(with_disk, DIGESTS[:3], [5, 3, 4])
    assert [loaded.uses[tier].num_blocks for tier in (Tier.HOST, Tier.DISK)] == [2, 1]
    assert (read(memory, [5, 3, 4]) == rows[:3]).all()


def test_what_one_tier_lacks_is_not_in_all(memory, with_disk):
    fill(memory, 1)
    store(with_disk, [0, 1])
    path_of(with_disk, DIGESTS[0]).unlink()
    with_disk.folders[Tier.DISK].remove(path_of(with_disk, DIGESTS[1], Tier.DISK).name)
    assert [with_disk.is_in_all(digest) for digest in DIGESTS[:3]] == [False] * 3
    store(with_disk, [0, 1])
    assert [with_disk.is_in_all(digest) for digest in DIGESTS[:3]] == [True, True, False]


def test_a_damaged_file_of_one_tier_is_taken_from_the_next(memory, with_disk):
    fill(memory, 1)
    store(with_disk, [0])
    path_of(with_disk, DIGESTS[0]).write_bytes(b"torn")
    loaded = load(with_disk, DIGESTS[:1], [3])
    assert loaded.num_blocks == 1
    assert [loaded.uses[tier].num_faults for tier in (Tier.HOST, Tier.DISK)] == [1, 0]


def test_a_full_disk_is_told_of_once_and_the_host_goes_on(memory, with_disk, monkeypatch):
    rows = fill(memory, 1)
    write, disk = os.writev, str(with_disk.folders[Tier.DISK].path)

    def half(fd, parts):
        """As much as is free, and then nothing."""
        if not os.readlink(f"/proc/self/fd/{fd}").startswith(disk):
            return write(fd, parts)
        write(fd, [bytes(parts[0])[:10]])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", half)
    with capture_logs() as lines:
        store(with_disk, [0, 1])
        assert store(with_disk, [2])[Tier.DISK].num_faults == 2
    assert [line["event"] for line in lines] == ["could not store KV blocks"]
    assert [with_disk.find(digest) for digest in DIGESTS[:3]] == [Tier.HOST] * 3
    assert not list(with_disk.folders[Tier.DISK].path.glob(".part-*"))
    assert load(with_disk, DIGESTS[:3], [5, 3, 4]).num_blocks == 3
    assert (read(memory, [5, 3, 4]) == rows[:3]).all()
    with_disk.folders[Tier.HOST].remove(path_of(with_disk, DIGESTS[0]).name)
    assert load(with_disk, DIGESTS[:3], [5, 3, 4]).num_blocks == 0  # and computes the rest
    monkeypatch.undo()
    store(with_disk, [3])
    assert with_disk.find(DIGESTS[3]) is Tier.HOST
    assert store(with_disk, [4])[Tier.DISK].num_blocks == 1  # of the store before: there is room again


def test_what_a_slow_disk_was_not_given_is_counted(memory, with_disk):
    fill(memory, 1)
    with_disk.leave_out_below(3)
    assert store(with_disk, [0])[Tier.DISK].num_left_out == 3
    assert store(with_disk, [1])[Tier.DISK].num_left_out == 0


def test_what_is_told_as_used_goes_after_the_rest_whatever_tier_it_is_in(memory, with_disk):
    fill(memory, 1)
    store(with_disk, [0, 1, 2, 3])
    now = time.monotonic() + 1
    used = [(DIGESTS[1], now), (DIGESTS[2], now - BEFORE_S), (DIGESTS[0], now - 2 * BEFORE_S), (DIGESTS[4], now)]
    with_disk.store_below(with_disk.store([], [], [], used)[1], used)
    for tier in (Tier.HOST, Tier.DISK):
        times = [path_of(with_disk, digest, tier).stat().st_mtime_ns for digest in DIGESTS[:4]]
        assert sorted(range(4), key=times.__getitem__) == [3, 0, 2, 1]


def test_of_a_prefix_that_is_loaded_the_end_goes_first(memory, with_disk):
    fill(memory, 1)
    store(with_disk, [0, 1, 2])
    load(with_disk, DIGESTS[:3], [5, 3, 4])
    times = [path_of(with_disk, digest).stat().st_mtime_ns for digest in DIGESTS[:3]]
    assert times == sorted(times, reverse=True)


def test_the_order_of_uses_outlives_a_clock_that_is_set(memory, tiers, monkeypatch):
    fill(memory, 1)
    hour_ns, real = 3600 * 10**9, time.time_ns
    store(tiers, [0])
    before_ns = path_of(tiers, DIGESTS[0]).stat().st_mtime_ns
    monkeypatch.setattr("kvtransfer.tiers.tiered_blocks.time_ns", lambda: real() + hour_ns)
    store(tiers, [0])
    assert hour_ns <= path_of(tiers, DIGESTS[0]).stat().st_mtime_ns - before_ns < 1.1 * hour_ns


def test_of_a_prefix_that_is_larger_than_the_tier_the_beginning_is_kept(memory, shape, tmp_path):
    """It is stored part by part, and is all that there is to make room."""
    folder = TierFolder(tmp_path / "t", 4 * UNIT)
    tiers, now = TieredBlocks(memory, b"s", {Tier.HOST: folder}), time.monotonic()
    fill(memory, 1)
    for block in range(6):
        digests, blocks = DIGESTS[block : block + 1], [block]
        tiers.store(digests, blocks, tiers.generations(blocks), [(digests[0], now - block * BEFORE_S)])
    assert [tiers.find(digest) is not None for digest in DIGESTS[:6]] == [True, True, False, False, True, True]
