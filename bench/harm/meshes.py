"""The meshes that are harmed: their shapes, their topologies as `mesh up` takes them, and where their processes are."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harm.harm import PLAIN
from bench.live.ports import free_ports, free_range
from bench.models.tiny_llama import write_tiny_model
from engines.costs.profiles import ProfileFile
from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.sockets.curve import make_key_file
from mesh.topology.parse import load
from mesh.topology.schema import LOCAL_HOST, Topology
from mesh.wire.status import DecodeCost, PrefillCost

MESH_NAME, PLACEMENT = "harm", "placement"
HOSTS, PLACED, RELAYED, TWO_HOSTS, KEYED = "hosts", "placed", "relayed", "two-hosts", "keys"  # kinds
MODEL = "tiny"  # with random weights, which are there in an instant
OTHER_MODEL = "other"  # the same weights by another name, where services are placed
WORDY_MODEL = MODEL + "-" * 250  # the same by a name that makes every event of a stream long
MAX_CONTEXT = 4096  # tokens
KV_TOKENS = 32768  # that the pool of a modelled engine holds
TINY_KV_BYTES = 512  # of a token of the tiny model: 2 layers, K and V of 2 heads of 16 float32
PORTS_OF_HOST = 10  # two of each process: a supervisor, and two gateways, which have two names each, or an engine
CURVE_KEY, PROFILE, KEYS = "mesh.key", "profile.toml", "keys.json"
REPOSITORY = Path(__file__).parents[2]
HELD = {"prefill": (MODEL, OTHER_MODEL), "decode-0": (MODEL,), "decode-1": (OTHER_MODEL,)}  # services, where placed
HONEST, RIVAL, LIMITED, EXPIRED, NEARLY_RIGHT = "honest", "rival", "limited", "expired", "nearly-right"  # keys
LIMITS = {HONEST: KeyLimits(), RIVAL: KeyLimits(), LIMITED: KeyLimits(requests_per_minute=30, in_flight=2)}
PATIENT = {"ttft_ms": 30000, "min_ttft_ms": 5, "tpot_ms": 100, "max_context": MAX_CONTEXT}
CALM = {"ttft_ms": 5000, "tpot_ms": 250, "max_context": MAX_CONTEXT // 2}


@dataclass(frozen=True, slots=True)
class Shape:
    """What is special about a mesh of one prefill engine and some that decode.

    ``engines``: roles by id. ``host_of`` a process is given where there are several. ``step_s``: what a modelled
    decode step takes, with tokens that hang on every byte of KV; None: engines compute. ``is_relayed``: every message
    between two processes passes the harness, KV blocks too, and nothing moves unasked. ``is_placed``: there are two
    services, and a placement daemon that decides nothing by itself. ``is_keyed``: who asks needs a key.
    """

    engines: Mapping[str, str]
    gateways: tuple[str, ...]
    service: Mapping[str, int] = field(default_factory=lambda: PATIENT)
    step_s: float | None = 0.015
    host_of: Callable[[str], str] | None = None
    is_relayed: bool = False
    is_placed: bool = False
    is_keyed: bool = False


def _faulty(num_gateways: int = 2, **special: Any) -> Shape:
    engines = {"prefill": "prefill", "decode-0": "multiplex", "decode-1": "multiplex"}
    return Shape(engines, ("first", "second")[:num_gateways], **special)


def _besieged(**special: Any) -> Shape:
    return Shape({"prefill": "prefill", "decode": "multiplex"}, ("gateway",), CALM, step_s=None, **special)


FAULTY = {
    PLAIN: _faulty(),  # as a user would write it
    HOSTS: _faulty(host_of=lambda process: "front" if process in ("first", "second") else process),
    PLACED: _faulty(is_placed=True),
    RELAYED: _faulty(1, is_relayed=True),
}
HEALTHY = Shape({"engine": "multiplex"}, ("first",), step_s=0.0005)  # nothing happens to it
BESIEGED = {
    PLAIN: _besieged(),
    TWO_HOSTS: _besieged(host_of=lambda process: "front" if process == "gateway" else "back"),
    KEYED: _besieged(is_keyed=True),
}


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


def deploy(folder: Path, shape: Shape) -> Deployment:
    """Write the topology of a mesh, and all that its processes need, into the folder."""
    host_of = shape.host_of or (lambda _: LOCAL_HOST)
    service = {"model": str(write_tiny_model(folder / "model", max_context=2 * MAX_CONTEXT)), **shape.service}
    curve: dict[str, object] = {"curve_key": CURVE_KEY} if shape.host_of else {}
    tables = {"mesh": {"name": MESH_NAME, **curve}, f"services.{MODEL}": {**service, "aliases": [WORDY_MODEL]}}
    if curve:
        make_key_file(folder / CURVE_KEY)
        tables |= _hosts(list(dict.fromkeys(map(host_of, (*shape.gateways, *shape.engines)))))
    if shape.is_placed:
        tables |= {f"services.{OTHER_MODEL}": service, PLACEMENT: {"interval_s": 600}}
    for engine, role in shape.engines.items():
        its = _modelled(folder, engine, shape) if shape.step_s else {"threads": 1, "kv_memory": "8MiB"}
        tables[f"engines.{engine}"] = {"role": role, "host": host_of(engine), **its}
    for name, port in zip(shape.gateways, free_ports(len(shape.gateways)), strict=True):
        tables[f"gateways.{name}"] = {"port": port, "host": host_of(name)}
    if shape.step_s:
        tables["transfer"] = {"checksum": True, "transport": "tcp" if shape.is_relayed else "auto"}
        (folder / PROFILE).write_text(_profile(shape.step_s).text())
    if shape in FAULTY.values() and not shape.is_relayed:
        tables["rescheduling"] = {}
    if shape.is_keyed:
        tables["access"] = {"keys": KEYS}
        _write_keys(folder)
    path = folder / "topology.toml"
    path.write_text("".join(f"[{name}]\n{_lines(table)}" for name, table in tables.items()))
    return Deployment(load(path), {one: folder / one for one in shape.engines if shape.is_relayed})


def _lines(table: Mapping[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def _hosts(names: list[str]) -> dict[str, dict[str, Any]]:
    """All are this machine, by TCP with CURVE; none of them knows."""
    first = free_range(PORTS_OF_HOST * len(names))
    return {
        f"hosts.{name}": {"address": "127.0.0.1", "base_port": first + number * PORTS_OF_HOST}
        for number, name in enumerate(names)
    }


def _modelled(folder: Path, engine: str, shape: Shape) -> dict[str, object]:
    return {
        "backend": "simulated",
        "profile": PROFILE,
        "kv_memory": f"{KV_TOKENS * TINY_KV_BYTES}B",
        "python": str(_interpreter(folder, engine, shape)),
        **({"services": HELD[engine]} if shape.is_placed else {}),
    }


def _profile(step_s: float) -> ProfileFile:
    return ProfileFile(
        name="harm",
        source="made up",
        kv_bytes_per_token=1,
        kv_memory_bytes=KV_TOKENS,
        prefill=PrefillCost(fixed_s=step_s, per_token_s=step_s / 100),
        decode=DecodeCost(fixed_s=step_s, per_request_s=step_s / 50),
    )


def _interpreter(folder: Path, engine: str, shape: Shape) -> Path:
    """Runs the engine as ever, but in `bench.harm.faults.hanging`, and a relayed one in a runtime folder of its own."""
    script, hangs = folder / f"python-{engine}", folder / "hangs"
    hangs.mkdir(exist_ok=True)
    runtime = f'MESHSERVE_RUNTIME_DIR="{folder / engine}" ' if shape.is_relayed else ""
    script.write_text(
        f'#!/bin/sh\n{runtime}PYTHONPATH="{REPOSITORY}:$PYTHONPATH" '
        f'exec "{sys.executable}" -m bench.harm.faults.hanging "{hangs / engine}" "$@"\n'
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
