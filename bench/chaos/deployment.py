"""The topologies that the harness writes, into a folder that it makes."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from bench.live.ports import free_ports, free_range
from engines.costs.profiles import ProfileFile
from mesh.sockets.curve import make_key_file
from mesh.topology.schema import LOCAL_HOST
from mesh.wire.status import DecodeCost, PrefillCost
from router.api.http.server import ADMIN_PORT_OFFSET

MODEL = "tiny"
OTHER_MODEL = "other"  # the same weights by another name, where services are placed
PLACEMENT = "placement"
WORDY_MODEL = MODEL + "-" * 20_000  # the same by a name that makes every event of a stream long
MAX_CONTEXT = 4096  # tokens
KV_TOKENS = 32768  # that each engine's pool holds
TINY_KV_BYTES = 512  # of a token of the tiny model: 2 layers, K and V of 2 heads of 16 float32
MESH_NAME = "chaos"
ENGINES = {"prefill": "prefill", "decode-0": "multiplex", "decode-1": "multiplex"}  # roles by id
GATEWAYS = ("first", "second")
REPOSITORY = Path(__file__).parents[2]
FRONT = "front"  # the host of the gateways, where engines have their own
KEY, PROFILE = "mesh.key", "profile.toml"
PORTS_OF_HOST = 10  # two of each process: a supervisor, and two gateways, which have two names each, or an engine


class Backend(StrEnum):
    """What engines compute with: modelled steps whose tokens hang on every byte of KV, or a tiny random Llama."""

    SIMULATED = "simulated"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A topology on disk. ``folders`` are runtime folders by process, where they are not the mesh's own."""

    path: Path
    runtime: Path
    ports: tuple[int, ...]
    engines: tuple[str, ...]
    gateways: tuple[str, ...]
    folders: dict[str, Path]
    hangs: Path  # where a file with the name of an engine makes its next step hang
    hosts: tuple[str, ...] = (LOCAL_HOST,)
    daemons: tuple[str, ...] = ()

    @property
    def supervised(self) -> tuple[str, ...]:
        """All processes but supervisors."""
        return (*self.engines, *self.gateways, *self.daemons)

    def folder(self, process: str) -> Path:
        """Where a process really listens."""
        return self.folders.get(process, self.runtime) / MESH_NAME


@dataclass(frozen=True, slots=True)
class _Shape:
    """``roles`` are those of engines, by id, and ``services`` what they hold, if there is more than one."""

    roles: Mapping[str, str] = field(default_factory=lambda: ENGINES)
    gateways: tuple[str, ...] = GATEWAYS
    is_relayed: bool = False
    is_fast: bool = False
    has_hosts: bool = False
    services: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def host_of(self, process: str) -> str:
        """Engines have hosts of their own, named after them."""
        if not self.has_hosts:
            return LOCAL_HOST
        return process if process in self.roles else FRONT

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(self.host_of, (*self.gateways, *self.roles))))


def plain(folder: Path, model: Path, backend: Backend) -> Deployment:
    """As a user would write it: shared memory, sockets of the host, two gateways, engines that move requests."""
    return _write(folder, model, backend, _Shape())


def across_hosts(folder: Path, model: Path, backend: Backend) -> Deployment:
    """The same with each engine on a host of its own, by TCP with CURVE. All hosts are this machine; none knows."""
    make_key_file(folder / KEY)
    return _write(folder, model, backend, _Shape(has_hosts=True))


def relayed(folder: Path, model: Path, backend: Backend) -> Deployment:
    """Every message between two processes passes the harness, KV blocks too; one gateway; nothing moves unasked.

    An engine's runtime folder is told by the script that stands for its interpreter.
    """
    return _write(folder, model, backend, _Shape(gateways=GATEWAYS[:1], is_relayed=True))


def placed(folder: Path, model: Path, backend: Backend) -> Deployment:
    """Two services, each on one of the decode engines, and a placement daemon that decides nothing by itself."""
    both = (MODEL, OTHER_MODEL)
    services = dict(zip(ENGINES, (both, (MODEL,), (OTHER_MODEL,)), strict=True))
    return _write(folder, model, backend, _Shape(services=services))


def reference(folder: Path, model: Path, backend: Backend) -> Deployment:
    """One engine that nothing happens to: it says what answers should be, as fast as it can."""
    return _write(folder, model, backend, _Shape({"engine": "multiplex"}, GATEWAYS[:1], is_fast=True))


def _write(folder: Path, model: Path, backend: Backend, shape: _Shape) -> Deployment:
    ports = free_ports(len(shape.gateways))
    folders = {engine: folder / engine for engine in shape.roles} if shape.is_relayed else {}
    (folder / PROFILE).write_text(_profile(shape.is_fast).text())
    hangs = folder / "hangs"
    hangs.mkdir()
    interpreters = {engine: _interpreter(folder, engine, folders.get(engine), hangs) for engine in shape.roles}
    text = [
        f'[mesh]\nname = "{MESH_NAME}"',
        *([f'curve_key = "{KEY}"'] if shape.has_hosts else []),
        f'{_service(MODEL, model)}\naliases = ["{WORDY_MODEL}"]',
        *([_service(OTHER_MODEL, model), "[placement]\ninterval_s = 600"] if shape.services else []),
        *(_engine(engine, shape, backend, interpreters[engine]) for engine in shape.roles),
        *(_gateway(name, shape, port) for name, port in zip(shape.gateways, ports, strict=True)),
        *([] if shape.is_relayed or shape.is_fast else ["[rescheduling]"]),
        f'[transfer]\nchecksum = true\ntransport = "{"tcp" if shape.is_relayed else "auto"}"',
        *(_hosts(shape) if shape.has_hosts else []),
    ]
    path = folder / "topology.toml"
    path.write_text("\n".join(text) + "\n")
    daemons = (PLACEMENT,) if shape.services else ()
    engines = tuple(shape.roles)
    return Deployment(
        path, folder / "run", tuple(ports), engines, shape.gateways, folders, hangs, tuple(shape.hosts), daemons
    )


def _service(name: str, model: Path) -> str:
    promises = "ttft_ms = 30000\nmin_ttft_ms = 5\ntpot_ms = 100"
    return f'[services.{name}]\nmodel = "{model}"\n{promises}\nmax_context = {MAX_CONTEXT}'


def _engine(name: str, shape: _Shape, backend: Backend, interpreter: Path) -> str:
    lines = [f"[engines.{name}]", f'role = "{shape.roles[name]}"', f'kv_memory = "{KV_TOKENS * TINY_KV_BYTES}B"']
    lines.append(f'host = "{shape.host_of(name)}"')
    if name in shape.services:
        held = ", ".join(f'"{service}"' for service in shape.services[name])
        lines.append(f"services = [{held}]")
    if backend is Backend.SIMULATED:
        lines += ['backend = "simulated"', f'profile = "{PROFILE}"']
    lines.append(f'python = "{interpreter}"')
    return "\n".join(lines)


def _gateway(name: str, shape: _Shape, port: int) -> str:
    admin_port = port + ADMIN_PORT_OFFSET
    return f'[gateways.{name}]\nport = {port}\nadmin_port = {admin_port}\nhost = "{shape.host_of(name)}"'


def _hosts(shape: _Shape) -> list[str]:
    first_port = free_range(PORTS_OF_HOST * len(shape.hosts))
    return [
        f'[hosts.{host}]\naddress = "127.0.0.1"\nbase_port = {first_port + number * PORTS_OF_HOST}'
        for number, host in enumerate(shape.hosts)
    ]


def _profile(is_fast: bool) -> ProfileFile:
    """Steps slow enough to be hit in the middle, or as fast as they go."""
    decode_s, per_token_s = (0.0005, 0.000005) if is_fast else (0.015, 0.00015)
    return ProfileFile(
        name="chaos",
        source="made up",
        kv_bytes_per_token=1,
        kv_memory_bytes=KV_TOKENS,
        prefill=PrefillCost(fixed_s=decode_s, per_token_s=per_token_s),
        decode=DecodeCost(fixed_s=decode_s, per_request_s=decode_s / 50),
    )


def _interpreter(folder: Path, engine: str, its_folder: Path | None, hangs: Path) -> Path:
    """Runs the engine as ever, but in `bench.chaos.hanging`, and in a runtime folder of its own if it has one."""
    script = folder / f"python-{engine}"
    runtime = "" if its_folder is None else f'MESHSERVE_RUNTIME_DIR="{its_folder}" '
    script.write_text(
        f'#!/bin/sh\n{runtime}PYTHONPATH="{REPOSITORY}:$PYTHONPATH" '
        f'exec "{sys.executable}" -m bench.chaos.hanging "{hangs / engine}" "$@"\n'
    )
    script.chmod(0o755)
    return script
