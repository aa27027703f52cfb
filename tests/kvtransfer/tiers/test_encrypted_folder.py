"""Blocks on a disk with a key: never in plain text, and another key's are as if they were not there."""

from shutil import rmtree

import numpy as np
import pytest
from structlog.testing import capture_logs

from kvtransfer.layout import PageLayout
from kvtransfer.memory import KVMemory, PagedMemory
from kvtransfer.tiers.block_file import BlockFileError, space_of
from kvtransfer.tiers.folder import PARTIAL, UNIT, BlockFile, ListedFolder, TierFolder
from kvtransfer.tiers.tier import Tier
from kvtransfer.tiers.tiered_blocks import TieredBlocks
from tests.kvtransfer.test_offloaded import fill, read

pytest.importorskip("cryptography")
from kvtransfer.tiers.encrypted_folder import EncryptedFolder
from kvtransfer.tiers.encryption import FileCipher

PLAIN = b"what nobody may read " * 40
NAME = f"{7:032x}"
DIGESTS = [bytes([number]) * 16 for number in range(6)]


def encrypted(path, key=b"one"):
    return EncryptedFolder(path, 16 * UNIT, FileCipher(key))


def on_disk(path):
    return b"".join(place.read_bytes() for place in path.rglob("*") if place.is_file())


def test_what_is_written_is_read_and_is_not_on_the_disk(tmp_path):
    folder = encrypted(tmp_path / "disk")
    assert folder.write([BlockFile(NAME, [PLAIN[:9], PLAIN[9:]])]).num_written == 1
    assert folder.read(NAME) == PLAIN
    assert encrypted(tmp_path / "disk").read(NAME) == PLAIN
    assert b"nobody" not in on_disk(tmp_path / "disk")


def test_one_content_is_never_twice_the_same(tmp_path):
    cipher = FileCipher(b"one")
    assert cipher.encrypt(NAME, [PLAIN]) != cipher.encrypt(NAME, [PLAIN])


@pytest.mark.parametrize("change", ["cut", "flipped", "header", "renamed", "empty"])
def test_a_changed_file_is_refused(change):
    cipher = FileCipher(b"one")
    file = bytearray(cipher.encrypt(NAME, [PLAIN]))
    file[{"flipped": -1, "header": 20}.get(change, 0)] ^= change in ("flipped", "header")
    file = file[: {"cut": -1, "empty": 0}.get(change, len(file))]
    with pytest.raises(BlockFileError):
        cipher.decrypt(NAME if change != "renamed" else f"{8:032x}", bytes(file))


def test_what_was_there_before_the_key_goes(tmp_path):
    ListedFolder(tmp_path / "disk", 16 * UNIT).write([BlockFile(NAME, [PLAIN])])
    folder = encrypted(tmp_path / "disk")
    assert not folder.has(NAME)
    assert b"nobody" not in on_disk(tmp_path / "disk")
    folder.write([BlockFile(NAME, [PLAIN])])
    assert encrypted(tmp_path / "disk").has(NAME)
    ListedFolder(tmp_path / "disk", 16 * UNIT).write([BlockFile(f"{8:032x}", [PLAIN])])  # the key was taken away
    encrypted(tmp_path / "disk")
    assert b"nobody" not in on_disk(tmp_path / "disk")


def test_what_was_being_written_when_a_process_died_goes_with_the_rest(tmp_path):
    folder = ListedFolder(tmp_path, 16 * UNIT)
    (folder.path / f"{PARTIAL}1-1").write_bytes(PLAIN)
    encrypted(tmp_path)
    assert b"nobody" not in on_disk(tmp_path)


def test_a_folder_that_is_made_anew_has_the_key(tmp_path):
    folder = encrypted(tmp_path / "disk")
    rmtree(tmp_path / "disk")
    assert folder.write([BlockFile(NAME, [PLAIN])]).num_written == 1
    assert encrypted(tmp_path / "disk").has(NAME)
    assert b"nobody" not in on_disk(tmp_path / "disk")


def test_a_process_that_runs_with_the_key_of_before_writes_nothing_any_more(tmp_path):
    plain, first = ListedFolder(tmp_path, 16 * UNIT), encrypted(tmp_path, b"one")
    written = plain.write([BlockFile(NAME, [PLAIN])])
    assert (written.num_written, written.num_faults) == (0, 1)
    assert "another key" in written.why
    assert b"nobody" not in on_disk(tmp_path)
    assert first.write([BlockFile(NAME, [PLAIN])]).num_written == 1
    second = encrypted(tmp_path, b"two")
    assert first.write([BlockFile(NAME, [PLAIN])]).num_written == 0
    assert second.write([BlockFile(NAME, [PLAIN])]).num_written == 1


def test_to_change_the_key_or_to_take_it_away_is_to_empty_the_folder(tmp_path):
    def folder(key):
        return encrypted(tmp_path, key) if key else ListedFolder(tmp_path, 16 * UNIT)

    for key in (b"one", b"two", None, b"two"):
        first = folder(key)
        assert not first.has(NAME)
        assert first.write([BlockFile(NAME, [PLAIN])]).num_written == 1
        assert first.used_bytes == UNIT
        assert folder(key).has(NAME)


@pytest.mark.parametrize(
    ("other", "why"), [(b"two", "it is encrypted with another key"), (None, "it is encrypted, and no key is set")]
)
def test_blocks_of_another_key_are_counted_and_told_of_once(shape, tmp_path, other, why):
    memory = KVMemory(PagedMemory(PageLayout.of([shape], 6)), shape)
    rows = fill(memory, 1)

    def tiers(key):
        path = tmp_path / "disk"
        disk = ListedFolder(path, 2**20) if key is None else EncryptedFolder(path, 2**20, FileCipher(key))
        folders = {Tier.HOST: TierFolder(tmp_path / f"host-{key!r}", 2**20), Tier.DISK: disk}
        return TieredBlocks(memory, space_of("chat", "m", "float32", shape), folders)

    def load(one):
        one.open_load(1)
        return one.load(1, DIGESTS[:2], [4, 5])

    second, first = tiers(other), tiers(b"one")  # at the same time
    first.store_below(first.store(DIGESTS[:3], [0, 1, 2], first.generations([0, 1, 2]), [])[1], [])
    assert np.ascontiguousarray(rows[0]).tobytes()[:32] not in on_disk(tmp_path / "disk")
    with capture_logs() as lines:
        loaded = load(second)
    assert (loaded.num_blocks, loaded.uses[Tier.DISK].num_faults) == (0, 2)
    assert [line["why"] for line in lines if line["log_level"] == "warning"] == [why]
    third = tiers(b"one")
    third.open_load(1)
    assert third.load(1, DIGESTS[2:3], [4]).num_blocks == 1
    assert (read(memory, [4]) == rows[2:3]).all()
