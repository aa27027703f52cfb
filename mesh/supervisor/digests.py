"""Digests what a process depends on in its topology into one short text: when that changes, it is to be replaced."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from mesh import __version__
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec, Topology
from mesh.wire.frames import WIRE_VERSION

# Whatever is not named here counts, so that a section that is new replaces more than it must, and not less.
UNREAD_BY_ENGINES = ("access", "policy", "scaling", "placement", "traces")
UNREAD_BY_GATEWAYS = ("rescheduling", "scaling", "placement")
REPLACED_BY_ROSTERS = ("path", "engines", "gateways")
ONLY_FOR_THE_SUPERVISOR = ("is_standby", "at_least", "spans", "pool", "python")


def digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of(topology: Topology, spec: EngineSpec | GatewaySpec | PlacementSpec) -> str:
    """Return the digest of a process of this topology and of the code that it would run."""
    parts = [__version__, WIRE_VERSION.decode(), _plain(spec), _read(topology, spec), _contents(topology, spec)]
    return digest_of_text(msgspec.json.encode(parts, order="sorted").decode())


def _read(topology: Topology, spec: EngineSpec | GatewaySpec | PlacementSpec) -> Mapping[str, Any]:
    """The rest of the topology, as far as the process reads it."""
    if isinstance(spec, PlacementSpec):
        return _sections(topology, ("path",))
    if isinstance(spec, GatewaySpec):
        servers = {"servers": [_plain(engine) for engine in topology.engines if engine.server is not None]}
        return _sections(topology, REPLACED_BY_ROSTERS + UNREAD_BY_GATEWAYS) | _roster(topology) | servers
    rest = _sections(topology, REPLACED_BY_ROSTERS + UNREAD_BY_ENGINES) | _roster(topology)
    return {**rest, "others": [[engine.backend, engine.services] for engine in topology.own_engines]}


def _sections(topology: Topology, unread: tuple[str, ...]) -> dict[str, Any]:
    names = [field.name for field in fields(topology) if field.name not in unread]
    return {name: _plain(getattr(topology, name)) for name in names}


def _roster(topology: Topology) -> dict[str, Any]:
    """Who is there, and in which order: on several hosts, ports are counted by it."""
    return {"roster": [[type(spec).__name__, spec.id, spec.host] for spec in topology.processes]}


def _contents(topology: Topology, spec: EngineSpec | GatewaySpec | PlacementSpec) -> list[str]:
    """Of the files that the topology names, and whose contents a process keeps as it found them."""
    profiles = [engine.profile for engine in topology.engines if spec in (engine, topology.placement)]
    names = [Path(profile) for profile in profiles if profile is not None and profile.endswith(".toml")]
    return [_content(path) for path in (*names, topology.curve_key) if path is not None]


def _content(path: Path) -> str:
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _plain(value: Any) -> Any:
    plain = msgspec.to_builtins(value, enc_hook=str)
    if isinstance(value, EngineSpec):
        return {key: plain[key] for key in plain if key not in ONLY_FOR_THE_SUPERVISOR}
    return plain
