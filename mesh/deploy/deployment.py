"""A deployment that is rendered, and what comes of it. `read_deployment` reads all files; what renders them is pure."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh.errors import UserError
from mesh.sockets.curve import CurveKey
from mesh.topology.parse import load, read_text
from mesh.topology.schema import Topology


@dataclass(frozen=True, slots=True)
class Deployment:
    """A topology with all that its files hold.

    ``text`` and ``document``: the file as it was read. ``profiles``: texts of the cost profiles that engines name, by
    path. ``curve_key``: the content of the mesh's key file, which is read only when it goes into a manifest.
    """

    topology: Topology
    text: str
    document: Mapping[str, Any]
    profiles: Mapping[str, str] = field(default_factory=dict)
    curve_key: str | None = None


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """What a topology does not say. Each target reads those that are for it.

    ``command``: path of ``mesh`` on the machines.
    ``storage``: size of a volume for each host; None: what it downloads ends with its pod. ``keda_secret``: name of the
    Secret whose ``token`` is an operator's key; None: the number of hosts stays. ``endpoint_picker``: Service of the
    picker of an InferencePool; None: there is no pool.
    """

    image: str
    command: str = "mesh"
    namespace: str = "default"
    storage: str | None = None
    with_secret: bool = False
    keda_secret: str | None = None
    endpoint_picker: str | None = None
    time_limit: str = "1-00:00:00"


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """One file, with its path under the output folder."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Rendering:
    """All files, and one line for each thing that is left to do by hand."""

    files: tuple[RenderedFile, ...]
    notes: tuple[str, ...] = ()


class RenderError(UserError):
    """A topology that a target cannot have. ``faults`` are lines that say what, and what would be right."""

    def __init__(self, topology: Topology, faults: list[str]) -> None:
        super().__init__("\n".join(f"{topology.path}: {fault}" for fault in dict.fromkeys(faults)))


def read_deployment(path: Path, *, with_secret: bool) -> Deployment:
    """Read the topology and what it names. Raise `UserError` for what is wrong or cannot be read."""
    text = read_text(path)
    topology = load(path, text)
    profiles = {engine.profile for engine in topology.engines if (engine.profile or "").endswith(".toml")}
    texts = {profile: read_text(Path(profile)) for profile in sorted(filter(None, profiles))}
    return Deployment(topology, text, tomllib.loads(text), texts, _read_key(topology) if with_secret else None)


def _read_key(topology: Topology) -> str:
    if topology.curve_key is None:
        raise RenderError(topology, ["mesh.curve_key: missing, and --with-secret takes the key from that file"])
    CurveKey.load(topology.curve_key)
    return read_text(topology.curve_key)
