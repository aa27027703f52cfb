"""Opens the KV tiers of an engine's host."""

import os
from collections.abc import Mapping
from pathlib import Path

from engines.models.cache import Cache
from kvtransfer.tiers.folder import ListedFolder, TierFolder
from kvtransfer.tiers.tier import Tier
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, Topology

MEMORY = Path("/dev/shm")  # a file system in memory, for all users of a Linux host


def open_tiers(topology: Topology, engine: EngineSpec) -> Mapping[Tier, TierFolder]:
    """Return nothing without ``[kv_tiers]``, or for an engine that looks for no prefixes. Raise `UserError` if a folder
    cannot be had.
    """
    spec = topology.kv_tiers
    if spec is None or not engine.prefix_caching or engine.scheduling.is_static:
        return {}
    tiers = {Tier.HOST: TierFolder(spec.host_folder or _own_folder(), spec.host_bytes)}
    if spec.disk_bytes:
        tiers[Tier.DISK] = ListedFolder(spec.disk_folder or Cache.of_user().root / "kv", spec.disk_bytes)
    return tiers


def _own_folder() -> Path:
    if not MEMORY.is_dir():
        raise UserError(f"[kv_tiers]: there is no {MEMORY} here; name a folder in memory as host_folder")
    return MEMORY / f"meshserve-kv-{os.geteuid()}"
