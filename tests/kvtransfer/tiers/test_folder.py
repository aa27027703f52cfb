"""A folder of block files: bounded, shared by several processes, and never in the way of serving."""

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from shutil import rmtree

import pytest

from kvtransfer.tiers.folder import (
    LOOK_S,
    MAKE_AGAIN_S,
    MARK,
    PARTIAL,
    UNIT,
    BlockFile,
    ListedFolder,
    TierFolder,
    Written,
)
from mesh.errors import UserError


def file(number: int, num_bytes: int = UNIT) -> BlockFile:
    return BlockFile(f"{number:032x}", [bytes([number % 256]), bytes(num_bytes - 1)])


def names(folder: TierFolder) -> list[str]:
    return sorted(path.name for path in folder.path.glob("??/*"))


def taken(folder: TierFolder) -> int:
    return sum(path.stat().st_size for path in folder.path.glob("??/*"))


def age(folder: TierFolder, number: int, seconds: float) -> None:
    path = next(folder.path.glob(f"??/{number:032x}"))
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def test_what_is_written_is_read(tmp_path):
    folder = TierFolder(tmp_path / "tier", 8 * UNIT)
    assert folder.write([file(1), file(2)]) == Written(2, 2 * UNIT, 0, 0)
    assert folder.read(file(2).name) == b"".join(map(bytes, file(2).parts))
    assert folder.has(file(1).name)
    assert folder.read(file(3).name) is None


def test_what_cannot_be_touched_is_no_fault(tmp_path, monkeypatch):
    """As on a file system that the kernel made read-only."""

    def refuse(_path, ns):
        raise OSError(30, "Read-only file system")

    folder = TierFolder(tmp_path / "tier", 8 * UNIT)
    folder.write([file(1)])
    monkeypatch.setattr(os, "utime", refuse)
    folder.touch(file(1).name, time.time_ns())
    assert folder.read(file(1).name) == b"".join(file(1).parts)


def test_what_is_there_is_not_written_again(tmp_path):
    folder, other = (TierFolder(tmp_path / "tier", 8 * UNIT) for _ in range(2))
    folder.write([file(1)])
    assert other.write([file(1), file(2)]) == Written(1, UNIT, 0, 0)
    assert other.used_bytes == 2 * UNIT


def test_the_longest_unused_files_make_room(tmp_path):
    folder = TierFolder(tmp_path / "tier", 4 * UNIT)
    folder.write([file(number) for number in range(4)])
    for number in range(4):
        age(folder, number, 100 - number)
    folder.touch(file(0).name, time.time_ns())  # the oldest is used
    assert folder.write([file(9)]).num_evicted == 2  # and a spare part of the folder
    assert names(folder) == sorted(file(number).name for number in (0, 3, 9))


def test_a_batch_that_is_larger_than_all_is_left_out(tmp_path):
    folder = TierFolder(tmp_path / "tier", 2 * UNIT)
    assert folder.write([file(number) for number in range(3)]) == Written(0, 0, 0, 3, "they are larger than the tier")
    assert names(folder) == []


def test_writers_beside_each_other_keep_the_bound(tmp_path):
    folders = [TierFolder(tmp_path / "tier", 16 * UNIT) for _ in range(4)]

    def write(writer: int) -> None:
        for number in range(40):
            folders[writer].write([file(number * 4 + writer), file(number)])
            with folders[writer]._locked():
                assert taken(folders[writer]) <= 16 * UNIT

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(names(folders[0])) > 8


def test_a_process_that_died_leaves_nothing_for_ever(tmp_path):
    folder = TierFolder(tmp_path / "tier", 4 * UNIT)
    (folder.path / f"{PARTIAL}1-1").write_bytes(bytes(100))
    (folder.path / "usage").write_bytes((4 * UNIT).to_bytes(8, "little"))  # it had counted what it did not write
    assert folder.write([file(1)]) == Written(1, UNIT, 0, 0)
    assert folder.used_bytes == UNIT
    assert not list(folder.path.glob(f"{PARTIAL}*"))


def test_a_full_device_is_a_fault_and_leaves_no_part(tmp_path, monkeypatch):
    folder = TierFolder(tmp_path / "tier", 8 * UNIT)

    def fail(fd, parts):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", fail)
    assert folder.write([file(1), file(2)]).num_faults == 2
    assert names(folder) == []
    assert not list(folder.path.glob(f"{PARTIAL}*"))


def test_on_a_device_below_the_bound_the_longest_unused_files_make_room(tmp_path, monkeypatch):
    folder, write = TierFolder(tmp_path / "tier", 64 * UNIT), os.writev

    def up_to_four(fd, parts):
        if taken(folder) == 4 * UNIT:
            raise OSError(28, "No space left on device")
        return write(fd, parts)

    monkeypatch.setattr(os, "writev", up_to_four)
    written = [folder.write([file(number)]) for number in range(7)]
    assert [one.num_written for one in written] == [1, 1, 1, 1, 0, 1, 1]
    assert (written[4].num_faults, written[4].num_evicted, written[4].why) == (1, 2, "No space left on device")
    assert names(folder) == [f"{number:032x}" for number in (2, 3, 5, 6)]


def test_a_device_that_fails_keeps_what_it_has(tmp_path, monkeypatch):
    folder = TierFolder(tmp_path / "tier", 8 * UNIT)
    folder.write([file(1)])

    def fail(fd, parts):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "writev", fail)
    assert folder.write([file(2), file(3)]) == Written(0, 0, 0, 2, "Input/output error")
    assert folder.has(file(1).name)


@pytest.mark.parametrize("kind", [TierFolder, ListedFolder])
def test_a_folder_that_is_gone_is_made_anew(tmp_path, kind):
    """Now and then: where somebody removes it again and again, that is a fault."""
    now = [100.0]
    folder = kind(tmp_path / "tier", 8 * UNIT, lambda: now[0])
    folder.write([file(1)])
    rmtree(tmp_path / "tier")
    assert folder.read(file(1).name) is None
    assert folder.write([file(2)]) == Written(1, UNIT, 0, 0)
    assert [folder.has(file(number).name) for number in (1, 2)] == [False, True]
    assert (folder.used_bytes, stat.S_IMODE((tmp_path / "tier").stat().st_mode)) == (UNIT, 0o700)
    rmtree(tmp_path / "tier")
    assert folder.write([file(3)]) == Written(0, 0, 0, 1, "No such file or directory")
    now[0] += MAKE_AGAIN_S
    assert folder.write([file(3)]) == Written(1, UNIT, 0, 0)


def test_a_folder_of_others_in_the_place_of_one_that_is_gone_is_not_used(tmp_path):
    """As in /dev/shm, where everybody may make folders."""
    folder = TierFolder(tmp_path / "tier", 8 * UNIT)
    folder.write([file(1)])
    folder.path.chmod(0o777)
    assert folder.write([file(2)]) == Written(0, 0, 0, 1, "others may write there")
    with pytest.raises(PermissionError):
        folder.read(file(1).name)


def test_a_folder_is_not_made_anew_where_its_file_system_was(tmp_path, monkeypatch):
    folder = TierFolder(tmp_path / "tier", 8 * UNIT)
    rmtree(tmp_path / "tier")
    monkeypatch.setattr(folder, "_device", folder._device + 1)  # it was that of a disk
    assert folder.write([file(1)]) == Written(0, 0, 0, 1, "No such file or directory")
    assert not (tmp_path / "tier").exists()


def test_who_may_write_nothing_does_not_make_a_folder_anew(tmp_path):
    folder = ListedFolder(tmp_path / "tier", 8 * UNIT)
    (folder.path / MARK).write_text("another key")
    assert folder.write([file(1)]).num_faults == 1
    rmtree(folder.path)
    assert folder.write([file(1)]) == Written(0, 0, 0, 1, "No such file or directory")


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_a_folder_of_others_is_refused(tmp_path, mode):
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier").chmod(mode)
    with pytest.raises(UserError, match=r"tier: others may write there; name a folder of your own in \[kv_tiers\]"):
        TierFolder(tmp_path / "tier", UNIT)


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "tier").write_text("")
    for path in (tmp_path / "tier", tmp_path / "tier" / "below"):
        with pytest.raises(UserError, match=r"cannot be a folder of \[kv_tiers\]: a file is in its place"):
            TierFolder(path, UNIT)


def test_a_listed_folder_knows_what_was_there_and_what_it_wrote(tmp_path):
    TierFolder(tmp_path / "tier", 8 * UNIT).write([file(1)])
    folder = ListedFolder(tmp_path / "tier", 8 * UNIT)
    folder.write([file(2)])
    assert [folder.has(file(number).name) for number in (1, 2, 3)] == [True, True, False]


def test_a_listed_folder_looks_now_and_then_for_what_others_wrote(tmp_path):
    now = [0.0]
    folder, other = ListedFolder(tmp_path / "tier", 8 * UNIT, lambda: now[0]), TierFolder(tmp_path / "tier", 8 * UNIT)
    other.write([file(1)])
    folder.write([file(2)])
    assert not folder.has(file(1).name)
    now[0] = LOOK_S
    folder.write([file(3)])
    assert folder.has(file(1).name)


def test_a_listed_folder_writes_nothing_that_others_wrote_since_it_looked(tmp_path):
    folder, other = (ListedFolder(tmp_path / "tier", 8 * UNIT, lambda: 0.0) for _ in range(2))
    other.write([file(1)])
    assert folder.write([file(1), file(2)]) == Written(1, UNIT, 0, 0)
    assert (folder.used_bytes, folder.has(file(1).name)) == (2 * UNIT, True)


def test_a_listed_folder_forgets_what_is_gone(tmp_path):
    folder, other = ListedFolder(tmp_path / "tier", 8 * UNIT), TierFolder(tmp_path / "tier", 8 * UNIT)
    folder.write([file(1), file(2)])
    other.remove(file(1).name)
    assert folder.has(file(1).name)
    assert folder.read(file(1).name) is None
    assert not folder.has(file(1).name)
    folder.remove(file(2).name)
    assert not other.has(file(2).name)


def test_a_listed_folder_forgets_what_it_evicts(tmp_path):
    folder = ListedFolder(tmp_path / "tier", 2 * UNIT)
    for number in range(4):
        folder.write([file(number)])
    assert [folder.has(file(number).name) for number in range(4)].count(True) == len(names(folder))
