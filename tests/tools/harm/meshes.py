"""The meshes that are harmed (``meshes.toml``), completed as `mesh up` takes them, and where their processes are."""

import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from bench.live.ports import free_ports
from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.sockets.curve import make_key_file
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from tests.models.tiny_llama import write_tiny_model
from tests.models.tiny_seeing import write_blind_model
from tests.tools.harm.harm import PLAIN
from tests.tools.ports import free_range

TOPOLOGIES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
HOSTS, PLACED, RELAYED, TWO_HOSTS, KEYED = "hosts", "placed", "relayed", "two-hosts", "keys"  # kinds
MESH_NAME, PLACEMENT = "harm", "placement"
MODEL = "tiny"  # with random weights, which are there in an instant
OTHER_MODEL = "other"  # the same weights by another name, where services are placed
SEEING_MODEL = "sights"  # where a mesh has it
WORDY_MODEL = MODEL + "-" * 250  # the same by a name that makes every event of a stream long
MAX_CONTEXT = 8192  # tokens, of the model
PORTS_OF_HOST = 10  # two of each process: a supervisor, and two gateways, which have two names each, or an engine
CURVE_KEY, PROFILE, KEYS = "mesh.key", "profile.toml", "keys.json"
REPOSITORY = Path(__file__).parents[3]
HONEST, RIVAL, LIMITED, EXPIRED, NEARLY_RIGHT = "honest", "rival", "limited", "expired", "nearly-right"  # keys
LIMITS = {HONEST: KeyLimits(), RIVAL: KeyLimits(), LIMITED: KeyLimits(requests_per_minute=30, in_flight=2)}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A topology, and where its processes are. ``folders`` are runtime folders that are not the mesh's own."""

    topology: Topology
    folders: Mapping[str, Path] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.topology.path

    @property
    def runtime(self) -> Path:
        return self.path.parent / "run"

    @property
    def hangs(self) -> Path:
        """Where a file with the name of an engine makes its next step hang."""
        return self.path.parent / "hangs"

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(engine.id for engine in self.topology.engines)

    @property
    def gateways(self) -> tuple[str, ...]:
        return tuple(gateway.id for gateway in self.topology.gateways)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(gateway.port for gateway in self.topology.gateways)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.topology.hosts)

    @property
    def supervised(self) -> tuple[str, ...]:
        """All processes but supervisors."""
        return (*self.engines, *self.gateways, *([PLACEMENT] if self.topology.placement else []))

    def folder(self, process: str) -> Path:
        """Where a process really listens."""
        return self.folders.get(process, self.runtime) / MESH_NAME


def kinds(programme: str) -> list[str]:
    return [kind for kind in TOPOLOGIES[programme] if kind != "all"]


def deploy(folder: Path, programme: str, kind: str = PLAIN) -> Deployment:
    """Write the topology of a mesh, and all that its processes need, into the folder."""
    tables = _merged(TOPOLOGIES[programme]["all"], TOPOLOGIES[programme][kind])
    each, profile = tables.pop("each_engine"), tables.pop("profile", None)
    services, engines, gateways = tables["services"], tables["engines"], tables["gateways"]
    model = str(write_tiny_model(folder / "model", max_context=MAX_CONTEXT))
    for service in services.values():
        service["model"] = model
    if SEEING_MODEL in services:
        services[SEEING_MODEL]["model"] = str(write_blind_model(folder / SEEING_MODEL))
    services[MODEL]["aliases"] = [WORDY_MODEL]
    for name, engine in engines.items():
        engine.update(each, **({"python": str(_interpreter(folder, name, kind))} if profile else {}))
    for gateway, port in zip(gateways.values(), free_ports(len(gateways)), strict=True):
        gateway["port"] = port
    if hosts := list(dict.fromkeys(one["host"] for one in (*gateways.values(), *engines.values()) if "host" in one)):
        make_key_file(folder / CURVE_KEY)
        tables |= {"mesh": {"curve_key": CURVE_KEY}, "hosts": _hosts(hosts)}
    if profile:
        (folder / PROFILE).write_text(tomli_w.dumps(profile))
    if "access" in tables:
        _write_keys(folder)
    path = folder / "topology.toml"
    path.write_text(tomli_w.dumps(_merged({"mesh": {"name": MESH_NAME}}, tables)))
    return Deployment(load(path), {one: folder / one for one in engines if kind == RELAYED})


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of both; what the other says goes."""
    both = {name: _merged(value, {}) if isinstance(value, dict) else value for name, value in one.items()}
    for name, value in other.items():
        both[name] = _merged(both.get(name, {}), value) if isinstance(value, dict) else value
    return both


def _hosts(names: list[str]) -> dict[str, dict[str, Any]]:
    """All are this machine, by TCP with CURVE; none of them knows."""
    first = free_range(PORTS_OF_HOST * len(names))
    ports = range(first, first + PORTS_OF_HOST * len(names), PORTS_OF_HOST)
    return {name: {"address": "127.0.0.1", "base_port": port} for name, port in zip(names, ports, strict=True)}


def _interpreter(folder: Path, engine: str, kind: str) -> Path:
    """Runs the engine as ever, but in `tests.tools.harm.faults.hanging`.

    A relayed one has a runtime folder of its own.
    """
    script, hangs = folder / f"python-{engine}", folder / "hangs"
    hangs.mkdir(exist_ok=True)
    runtime = f'MESHSERVE_RUNTIME_DIR="{folder / engine}" ' if kind == RELAYED else ""
    script.write_text(
        f'#!/bin/sh\n{runtime}PYTHONPATH="{REPOSITORY}:$PYTHONPATH" '
        f'exec "{sys.executable}" -m tests.tools.harm.faults.hanging "{hangs / engine}" "$@"\n'
    )
    script.chmod(0o755)
    return script


def _write_keys(folder: Path) -> None:
    """The file of the mesh, and beside it each key as its owner has it."""
    now = time.time()
    made = [make_key(name, limits, now) for name, limits in LIMITS.items()]
    made.append(make_key(EXPIRED, KeyLimits(), now, now - 1.0))
    change_keys(folder / KEYS, lambda _: tuple(key for key, _ in made))
    texts = {key.name: text for key, text in made}
    for name, text in {**texts, NEARLY_RIGHT: texts[HONEST][:-1] + "~"}.items():
        key_path(folder, name).write_text(text)


def key_path(folder: Path, name: str) -> Path:
    """Where the owner of a key of that name keeps it, beside a topology that asks for keys."""
    return folder / f"{name}.key"


def key_headers(deployment: Deployment, name: str) -> dict[str, str]:
    """The header of a key; none where keys are not asked for."""
    path = key_path(deployment.path.parent, name)
    return {"authorization": f"Bearer {path.read_text()}"} if path.exists() else {}
