"""The meshes under siege: topologies, and a small disk of their own."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.harm.deployment import MODEL, Deployment, Tables, write
from bench.harm.running import RunningMesh, running
from bench.harm.siege.attack import KEYED, TWO_HOSTS
from bench.harm.siege.ground import EXPIRED, HONEST, LIMITED, MAX_CONTEXT, RIVAL, key_path
from bench.live.ports import free_port
from bench.models.tiny_llama import write_tiny_model
from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.topology.schema import LOCAL_HOST

ENGINES = {"prefill": "prefill", "decode": "multiplex"}  # roles by id
DISK = "64m"
KEYS = "keys.json"
FEW = KeyLimits(requests_per_minute=30, in_flight=2)


def deploy(kind: str, folder: Path) -> Deployment:
    """A prefill engine, one that decodes, and a gateway; on two hosts the engines are on the second."""
    model = write_tiny_model(folder / "model", max_context=MAX_CONTEXT)
    hosts = ("front", "back") if kind == TWO_HOSTS else ()
    front, back = hosts or (LOCAL_HOST, LOCAL_HOST)
    promises = {"ttft_ms": 5000, "tpot_ms": 250, "max_context": MAX_CONTEXT}
    tables: Tables = {f"services.{MODEL}": {"model": str(model), **promises}}
    for name, role in ENGINES.items():
        tables[f"engines.{name}"] = {"role": role, "threads": 1, "kv_memory": "8MiB", "host": back}
    tables["gateways.gateway"] = {"port": free_port(), "host": front}
    if kind == KEYED:
        _write_keys(folder)
        tables["access"] = {"keys": KEYS}
    return Deployment(write(folder, tables, hosts))


def _write_keys(folder: Path) -> None:
    """The file of the mesh, and beside it each key as its owner has it."""
    now = time.time()
    limits = {HONEST: KeyLimits(), RIVAL: KeyLimits(), LIMITED: FEW}
    made = [make_key(name, its, now) for name, its in limits.items()]
    made.append(make_key(EXPIRED, KeyLimits(), now, now - 1.0))
    change_keys(folder / KEYS, lambda _: tuple(key for key, _ in made))
    for key, text in made:
        key_path(folder, key.name).write_text(text)


@asynccontextmanager
async def standing(deployment: Deployment) -> AsyncIterator[RunningMesh]:
    """The mesh until the end of the block, on a file system of its own if that is allowed, which attacks can fill."""
    folder = deployment.runtime
    folder.mkdir(mode=0o700)
    options = f"size={DISK},mode=0700"
    has_disk = os.getuid() == 0 and await _do("mount", "-t", "tmpfs", "-o", options, "none", str(folder))
    try:
        async with running(deployment, deployment.path.parent / "cache") as mesh:
            yield mesh
    finally:
        if has_disk:
            await _do("umount", "-l", str(folder))


async def _do(*command: str) -> bool:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    return done.returncode == 0
