"""Opens the KV tiers of an engine's host."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from engines.memory.known_shapes import known_config, shape_of
from engines.models.cache import Cache
from engines.models.files.model_config import ModelConfig
from kvtransfer.layout import block_bytes
from kvtransfer.tiers.block_file import file_bytes
from kvtransfer.tiers.folder import ListedFolder, TierFolder, taken_bytes
from kvtransfer.tiers.tier import Tier
from mesh.access.private_file import is_private
from mesh.errors import UserError
from mesh.extras import missing_extra
from mesh.topology.schema import EngineSpec, ServiceSpec, Topology
from mesh.topology.stores import KVTiersSpec

MEMORY = Path("/dev/shm")  # a file system in memory, for all users of a Linux host
LEAST_SECRET: Final = 32  # characters of a key: 128 bits and more, if they are hexadecimal digits
MAKE_ONE: Final = "make one with `openssl rand -hex 32`"


def open_tiers(topology: Topology, engine: EngineSpec) -> Mapping[Tier, TierFolder]:
    """Return nothing without ``[kv_tiers]``, or for an engine that looks for no prefixes. Raise `UserError` if a folder
    or its key cannot be had.
    """
    spec = topology.kv_tiers
    if spec is None or not engine.prefix_caching or engine.scheduling.is_static:
        return {}
    if problem := shared_folder(spec):
        raise UserError(f"[kv_tiers]: {problem}")
    tiers = {Tier.HOST: TierFolder(_host_folder(spec), spec.host_bytes)}
    if spec.disk_bytes:
        tiers[Tier.DISK] = _open_disk(spec, _disk_folder(spec))
    return tiers


def shared_folder(spec: KVTiersSpec) -> str:
    """Say in one line that both tiers would hold the same files; empty if they do not."""
    if not spec.disk_bytes:
        return ""
    host, disk = _host_folder(spec).resolve(), _disk_folder(spec).resolve()
    if not (host.is_relative_to(disk) or disk.is_relative_to(host)):
        return ""
    return f"disk_folder {disk} and host_folder {host} share files; name two that are apart"


def too_small_tier(topology: Topology, engine: EngineSpec) -> str:
    """Say in one line which tier holds no block of a service, as far as its model is here; empty if all hold some."""
    spec = topology.kv_tiers
    if spec is None or not engine.prefix_caching or engine.scheduling.is_static or engine.backend == "simulated":
        return ""
    for service in map(topology.service, engine.services):
        config = known_config(service)
        num_bytes = 0 if config is None else _file_bytes(config, service, engine.block_size)
        for key, size in (("host", spec.host_bytes), ("disk", spec.disk_bytes or num_bytes)):
            if size < num_bytes:
                needed = f"{num_bytes} bytes for {engine.block_size} tokens of services.{service.name}"
                return f"{key} = {size} bytes holds no block ({needed}); use more than that"
    return ""


def _file_bytes(config: ModelConfig, service: ServiceSpec, block_size: int) -> int:
    return taken_bytes(file_bytes(block_bytes(shape_of(config, service, block_size))))


def missing_encryption(spec: KVTiersSpec) -> str:
    """Say in one line what the key of the disk needs and is not installed; empty if nothing is missing."""
    key = "disk_key_env" if spec.disk_key_env is not None else "disk_key_file"
    has_key = spec.disk_key_env is not None or spec.disk_key_file is not None
    return missing_extra(key, "encryption", "cryptography") if has_key else ""


def _host_folder(spec: KVTiersSpec) -> Path:
    if spec.host_folder is not None:
        return spec.host_folder
    if not MEMORY.is_dir():
        raise UserError(f"[kv_tiers]: there is no {MEMORY} here; name a folder in memory as host_folder")
    return MEMORY / f"meshserve-kv-{os.geteuid()}"


def _disk_folder(spec: KVTiersSpec) -> Path:
    return spec.disk_folder or Cache.of_user().root / "kv"


def _open_disk(spec: KVTiersSpec, folder: Path) -> TierFolder:
    secret = disk_secret(spec)
    if secret is None:
        return ListedFolder(folder, spec.disk_bytes)
    if problem := missing_encryption(spec):
        raise UserError(f"[kv_tiers]: {problem}")
    from kvtransfer.tiers.encrypted_folder import EncryptedFolder
    from kvtransfer.tiers.encryption import FileCipher

    return EncryptedFolder(folder, spec.disk_bytes, FileCipher(secret))


def disk_secret(spec: KVTiersSpec) -> bytes | None:
    """Read what the key of the disk is made from; None: it has none. Raise `UserError` if it is not where the topology
    says, is too short, or others can read it.
    """
    if spec.disk_key_env is not None:
        source = f"[kv_tiers]: disk_key_env = {spec.disk_key_env!r}"
        secret = os.environ.get(spec.disk_key_env, "").strip()
        if not secret:
            raise UserError(f"{source} is not set for this process; {MAKE_ONE}")
    elif spec.disk_key_file is not None:
        source = f"[kv_tiers]: disk_key_file = {spec.disk_key_file}"
        secret = _read_private(spec.disk_key_file, source)
    else:
        return None
    if len(secret) < LEAST_SECRET:
        raise UserError(f"{source} holds {len(secret)} characters, want {LEAST_SECRET} at least; {MAKE_ONE}")
    return secret.encode()


def _read_private(path: Path, source: str) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            if not is_private(os.fstat(file.fileno())):
                raise UserError(f"{source} can be read by others; run `chmod 600 {path}`")
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{source} cannot be read ({error}); {MAKE_ONE}") from None
