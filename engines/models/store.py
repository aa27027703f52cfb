"""Finds prepared models. Light: processes that only use models import this, not `engines.models.prepare`."""

from pathlib import Path

import msgspec

from engines.models.cache import Cache, Entry
from engines.models.errors import ModelError
from engines.models.files.block_kinds import BLOCKS_FILE
from engines.models.files.model_config import ModelConfig
from engines.models.files.safetensors_header import check_whole
from engines.models.reference import FORMS, GgufFile, ModelFolder, Reference, parse_reference


def prepared_dir(reference: str, cache: Cache | None = None) -> Path:
    """The folder of a model that is ready to load. Raises `ModelError` when it must be prepared first."""
    parsed = parse_reference(reference)
    if isinstance(parsed, ModelFolder):
        check_folder(parsed.path)
        return parsed.path
    folder = find_prepared(parsed, (cache or Cache.of_user()).entry(str(parsed)))
    if folder is None:
        raise ModelError(f"model {parsed} is not prepared; run: mesh models prepare {parsed}")
    return folder


def find_prepared(reference: Reference, entry: Entry) -> Path | None:
    """The prepared folder, unless there is none, it is damaged, or the user's GGUF file has changed since."""
    folder = entry.prepared()
    if folder is None or not _is_good(folder):
        return None
    if not isinstance(reference, GgufFile):
        return folder
    manifest, file = entry.manifest(entry.model), file_state(reference.path)
    return folder if manifest and (manifest.source_bytes, manifest.source_mtime_ns) == file else None


def check_place(reference: str) -> None:
    """Raise `ModelError` if a model is named by its path, and cannot be served from there. Others can be fetched."""
    match parse_reference(reference):
        case ModelFolder(path):
            check_folder(path)
        case GgufFile(path):
            file_state(path)


def file_state(path: Path) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds. Raises `ModelError` if there is no such file."""
    try:
        status = path.stat()
    except OSError as error:
        raise ModelError(f"model {path}: {error.strerror}; a model is {FORMS}") from error
    return status.st_size, status.st_mtime_ns


def check_folder(folder: Path) -> None:
    """Raise `ModelError` unless the folder holds a model that can be served."""
    if not folder.is_dir():
        raise ModelError(f"model {folder}: no such folder; a model is {FORMS}")
    ModelConfig.load(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{folder}: tokenizer.json is missing; save the tokenizer in the format of Hugging Face tokenizers"
        )
    _check_weights(folder)


def _check_weights(folder: Path) -> None:
    for file in weight_files(folder):
        check_whole(file)


def weight_files(folder: Path) -> list[Path]:
    """Return the files that a model's weights are in. Raise `ModelError` if one is missing."""
    blocks = [folder / BLOCKS_FILE] if (folder / BLOCKS_FILE).is_file() else []
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if not index.is_file():
        if not single.is_file():
            raise ModelError(f"{folder}: neither {single.name} nor {index.name} is there")
        return [*blocks, single]
    try:
        shards = sorted(set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values()))
    except msgspec.DecodeError as error:
        raise ModelError(f"{index}: {error}") from error
    for shard in shards:
        if not (folder / shard).is_file():
            raise ModelError(f"{folder}: {shard} is missing, which {index.name} names")
    return [*blocks, *(folder / shard for shard in shards)]


def _is_good(folder: Path) -> bool:
    try:
        check_folder(folder)
    except ModelError:
        return False
    return True


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]
