"""Remembers measured profiles: one TOML file per model, engine settings and machine, in the cache."""

import fcntl
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from engines.costs.profiles import ProfileError, ProfileFile, read_profile_file
from engines.costs.step_cost import StepCost
from engines.models.cache import Cache
from kvtransfer.layout import block_bytes
from mesh.topology.schema import EngineSpec, ServiceSpec
from mesh.wire.transfers import KVShape


@dataclass(frozen=True, slots=True)
class ProfileStore:
    """Profiles in ``folder``, by key."""

    folder: Path

    @classmethod
    def of(cls, cache: Cache) -> "ProfileStore":
        return cls(cache.root / "profiles")

    def load(self, key: str) -> ProfileFile | None:
        """Load a profile. None if there is nothing usable: measuring again is cheap."""
        try:
            return read_profile_file(self.path(key))
        except ProfileError:
            return None

    @contextmanager
    def measuring(self, key: str) -> Iterator[ProfileFile | None]:
        """Yield a profile; None if there is none, and this process is to measure and save it meanwhile.

        Another process that measures it is waited for: engines alike start together, and would disturb one another.
        """
        if (known := self.load(key)) is not None:
            yield known
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(key).with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.load(key)

    def save(self, key: str, profile: ProfileFile) -> Path:
        """Write whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(key)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(profile.text(), encoding="utf-8")
        temporary.replace(path)
        return path

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.toml"


def profile_of(
    engine: EngineSpec,
    spec: ServiceSpec,
    shape: KVShape,
    cost: StepCost,
    source: str,
    error: Mapping[str, float] | None = None,
) -> ProfileFile:
    """A profile for keeping. ``source`` says how it was measured; the machine is added."""
    bytes_per_token = block_bytes(shape) // shape.block_size
    return ProfileFile(
        name=f"{spec.name} as {spec.dtype} on {engine.device}, {engine.threads} threads",
        source=f"{source}: {cpu_model()}, {os.cpu_count()} cores",
        kv_bytes_per_token=bytes_per_token,
        kv_bytes_per_request=bytes_per_token * (shape.block_size - 1) // 2,
        kv_memory_bytes=engine.kv_memory_bytes,
        prefill=cost.prefill,
        decode=cost.decode,
        mixed=cost.mixed,
        error=dict(error or {}),
    )


def profile_key(**parts: object) -> str:
    """Identity of a measurement: the parts named by the caller and the machine."""
    everything = {**parts, "machine": platform.machine(), "cpu": cpu_model(), "cores": os.cpu_count()}
    return blake2b(json.dumps(everything, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()


def server_key(url: str, model: str) -> str:
    """Identity of a server that is not ours, as it may be written in the name of a file."""
    return "server-" + re.sub(r"[^A-Za-z0-9.]+", "-", f"{url.partition('//')[2]}-{model}").strip("-")


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
