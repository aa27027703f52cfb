"""Looks at the models of a topology and at their cache."""

import os
import shutil
from pathlib import Path

from engines.models.cache import Cache
from engines.models.errors import ModelError
from engines.models.reference import GgufFile, ModelFolder, parse_reference
from engines.models.store import check_folder, file_state, find_prepared
from mesh.doctor.findings import Finding, Health
from mesh.topology.schema import ServiceSpec

ROOM_BYTES = 2 * 2**30  # of a small model that is fetched and converted


def cache(found: Cache) -> Finding:
    """Say whether more models fit."""
    nearest = _nearest(found.root)
    free_bytes = shutil.disk_usage(nearest).free
    text = f"{found.root}, {free_bytes / 2**30:.1f} GiB free there"
    elsewhere = "set MESHSERVE_CACHE to a folder on another disk"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Finding("cache", Health.BROKEN, f"{found.root} cannot be written", elsewhere)
    if free_bytes < ROOM_BYTES:
        return Finding("cache", Health.SLOW, text, f"make room for models, or {elsewhere}")
    return Finding("cache", Health.OK, text)


def model(service: ServiceSpec) -> Finding:
    about = f"model of {service.name}"
    try:
        return Finding(about, Health.OK, _state_of(service.model))
    except ModelError as error:
        return Finding(about, Health.BROKEN, str(error))


def _state_of(reference: str) -> str:
    """Raise `ModelError` if it cannot be had."""
    parsed = parse_reference(reference)
    if isinstance(parsed, ModelFolder):
        check_folder(parsed.path)
        return f"{reference} is ready"
    if isinstance(parsed, GgufFile):
        file_state(parsed.path)
    is_ready = find_prepared(parsed, Cache.of_user().entry(str(parsed))) is not None
    return f"{reference} is {'ready' if is_ready else 'fetched or converted at the first start'}"


def _nearest(folder: Path) -> Path:
    """The folder itself, or the one in which it would be made."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())
