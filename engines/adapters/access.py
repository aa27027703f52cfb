"""Decides which folders adapters are read from: those of the topology, and those below its folder for more."""

import os
from pathlib import Path

from engines.adapters.config import CONFIG_FILE
from engines.adapters.folder import WEIGHTS_FILE, AdapterFolder
from engines.models.errors import ModelError
from mesh.topology.schema import Topology
from mesh.wire.adapters import LoraAdapter


class AdapterFolders:
    """The folders that one topology allows. Links are followed before anything is compared."""

    def __init__(self, topology: Topology) -> None:
        self._named = frozenset(_real(service.adapter) for service in topology.adapters if service.adapter is not None)
        self._root = None if topology.added is None else _real(topology.added.folder)

    def __repr__(self) -> str:
        return f"<AdapterFolders {len(self._named)} named, others below {self._root}>"

    def allows(self, folder: str) -> bool:
        """Return whether it may be read, and the files in it."""
        real = _real(folder)
        return real in self._named or all(self._is_below(path) for path in (real, *_files(real)))

    def _is_below(self, path: Path) -> bool:
        return self._root is not None and self._root in _real(path).parents

    def resolve(self, path: str) -> str:
        """Return the folder that an operator means: a path below the topology's folder for adapters, or seen from
        there. Raise `ModelError` if it is not below it, or there is no such folder.
        """
        if self._root is None:
            raise ModelError('this deployment adds no adapters; name their folder: [adapters] folder = "adapters"')
        folder = _real(self._root / path)
        if not self.allows(str(folder)):
            raise ModelError(f"{path[:200]!r} is not below the folder of [adapters]; put the adapter there")
        if not folder.is_dir():
            raise ModelError(f"{path[:200]!r} is no folder below that of [adapters]")
        return str(folder)

    def read(self, adapter: LoraAdapter) -> AdapterFolder:
        """Return what a request's adapter is. Raise `ModelError` if it may not be read, or is another one by now."""
        if not self.allows(adapter.folder):
            raise ModelError(
                f"adapter {adapter.service}: {adapter.folder} is neither in this topology nor below [adapters]"
            )
        found = AdapterFolder.read(Path(adapter.folder))
        if found.digest != adapter.digest or found.num_weights != adapter.num_weights:
            raise ModelError(
                f"{adapter.folder}: its files have changed since {adapter.service} was added; add it again"
            )
        return found


def named(service: str, folder: AdapterFolder) -> LoraAdapter:
    """Return how requests of that service name the adapter."""
    return LoraAdapter(service, str(folder.path), folder.digest, folder.num_weights)


def _files(folder: Path) -> tuple[Path, ...]:
    return folder / CONFIG_FILE, folder / WEIGHTS_FILE


def _real(path: str | Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a zero in the path
        return Path(os.devnull)
