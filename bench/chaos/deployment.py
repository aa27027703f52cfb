"""The topologies that the harness writes, into a folder that it makes."""

import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engines.profiles import ProfileFile
from mesh.messages import DecodeCost, PrefillCost

MODEL = "tiny"
WORDY_MODEL = MODEL + "-" * 20_000  # the same by a name that makes every event of a stream long
MAX_CONTEXT = 4096  # tokens
KV_TOKENS = 32768  # that each engine's pool holds
TINY_KV_BYTES = 512  # of a token of the tiny model: 2 layers, K and V of 2 heads of 16 float32
MESH_NAME = "chaos"
GATEWAYS = ("first", "second")


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

    def folder(self, process: str) -> Path:
        """Where a process really listens."""
        return self.folders.get(process, self.runtime) / MESH_NAME


ENGINES = {"prefill": "prefill", "decode-0": "multiplex", "decode-1": "multiplex"}  # roles by id


def plain(folder: Path, model: Path, backend: Backend) -> Deployment:
    """As a user would write it: shared memory, sockets of the host, two gateways, engines that move requests."""
    return _write(folder, model, backend, ENGINES, GATEWAYS, relayed=False)


def relayed(folder: Path, model: Path, backend: Backend) -> Deployment:
    """Every message between two processes passes the harness, KV blocks too; one gateway; nothing moves unasked.

    An engine's runtime folder is told by the script that stands for its interpreter.
    """
    return _write(folder, model, backend, ENGINES, GATEWAYS[:1], relayed=True)


def reference(folder: Path, model: Path, backend: Backend) -> Deployment:
    """One engine that nothing happens to: it says what answers should be, as fast as it can."""
    return _write(folder, model, backend, {"engine": "multiplex"}, GATEWAYS[:1], relayed=False, is_fast=True)


def _write(
    folder: Path,
    model: Path,
    backend: Backend,
    roles: dict[str, str],
    gateways: Sequence[str],
    *,
    relayed: bool,
    is_fast: bool = False,
) -> Deployment:
    folder.mkdir()
    ports = _free_ports(len(gateways))
    folders = {engine: folder / engine for engine in roles} if relayed else {}
    profile = folder / "profile.toml"
    profile.write_text(_profile(is_fast).text())
    interpreters = {engine: _interpreter(folder, engine, its_folder) for engine, its_folder in folders.items()}
    text = [
        f'[mesh]\nname = "{MESH_NAME}"\nlog_level = "info"',
        f'[services.{MODEL}]\nmodel = "{model}"\nttft_ms = 30000\ntpot_ms = 100\nmax_context = {MAX_CONTEXT}'
        f'\naliases = ["{WORDY_MODEL}"]',
        *(_engine(engine, role, backend, profile, interpreters.get(engine)) for engine, role in roles.items()),
        *(f"[gateways.{name}]\nport = {port}" for name, port in zip(gateways, ports, strict=True)),
        *(() if relayed or is_fast else ("[rescheduling]",)),
        f'[transfer]\nchecksum = true\ntransport = "{"tcp" if relayed else "auto"}"',
    ]
    path = folder / "topology.toml"
    path.write_text("\n".join(text) + "\n")
    return Deployment(path, folder / "run", tuple(ports), tuple(roles), tuple(gateways), folders)


def _engine(name: str, role: str, backend: Backend, profile: Path, interpreter: Path | None) -> str:
    lines = [f"[engines.{name}]", f'role = "{role}"', f'kv_memory = "{KV_TOKENS * TINY_KV_BYTES}B"']
    if backend is Backend.SIMULATED:
        lines += ['backend = "simulated"', f'profile = "{profile}"']
    if interpreter is not None:
        lines.append(f'python = "{interpreter}"')
    return "\n".join(lines)


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


def _interpreter(folder: Path, engine: str, its_folder: Path) -> Path:
    script = folder / f"python-{engine}"
    script.write_text(f'#!/bin/sh\nMESHSERVE_RUNTIME_DIR="{its_folder}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


def _free_ports(count: int) -> list[int]:
    """All bound at once, so that they differ."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
