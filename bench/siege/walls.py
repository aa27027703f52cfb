"""The meshes under siege: topologies, and a small disk of their own."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.deployment import KEY, MESH_NAME, PORTS_OF_HOST, Deployment
from bench.chaos.running import RunningMesh, running
from bench.live.ports import free_ports, free_range
from bench.models.tiny_llama import write_tiny_model
from bench.siege.attack import KEYED, TWO_HOSTS
from bench.siege.ground import EXPIRED, HONEST, LIMITED, RIVAL, key_path
from engines.models.cache import Cache
from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.sockets.curve import make_key_file
from mesh.topology.parse import load
from mesh.topology.schema import LOCAL_HOST

DEFAULT_TOPOLOGY = Path(__file__).parents[2] / "deploy/topology.toml"
GATEWAY = "gateway"
ENGINES = {"prefill": "prefill", "decode": "multiplex"}  # roles by id
TINY_CONTEXT = 2048  # tokens
DISK = "64m"
KEYS = "keys.json"
FEW = KeyLimits(requests_per_minute=30, in_flight=2)


@dataclass(frozen=True, slots=True)
class Served:
    """The model that the mesh serves. ``known_tokens``: of the long answer that is compared."""

    name: str
    reference: str
    kv_memory: str
    known_tokens: int
    cache: Path
    max_context: int = TINY_CONTEXT


def tiny(folder: Path) -> Served:
    """Random weights that are there in an instant."""
    model = write_tiny_model(folder / "model", max_context=TINY_CONTEXT)
    return Served("tiny", str(model), "8MiB", 1500, folder / "cache")


def default_model() -> Served:
    """The default deployment's, from the user's own cache."""
    [service] = load(DEFAULT_TOPOLOGY).services
    return Served(service.name, service.model, "256MiB", 300, Cache.of_user().root)


def write(wall: str, folder: Path, served: Served) -> Deployment:
    """A prefill engine, one that decodes, and a gateway; on two hosts the engines are on the second."""
    hosts = ("front", "back") if wall == TWO_HOSTS else (LOCAL_HOST, LOCAL_HOST)
    [port] = free_ports(1)
    text = [
        f'[mesh]\nname = "{MESH_NAME}"',
        f'[services.{served.name}]\nmodel = "{served.reference}"\nttft_ms = 5000\ntpot_ms = 250',
        f"max_context = {served.max_context}",
        *(
            f'[engines.{name}]\nrole = "{role}"\nthreads = 1\nkv_memory = "{served.kv_memory}"\nhost = "{hosts[1]}"'
            for name, role in ENGINES.items()
        ),
        f'[gateways.{GATEWAY}]\nport = {port}\nhost = "{hosts[0]}"',
    ]
    if wall == TWO_HOSTS:
        make_key_file(folder / KEY)
        text[0] += f'\ncurve_key = "{KEY}"'
        text += _hosts(hosts)
    if wall == KEYED:
        _write_keys(folder)
        text.append(f'[access]\nkeys = "{KEYS}"')
    path = folder / "topology.toml"
    path.write_text("\n".join(text) + "\n")
    unused = folder / "hangs"
    return Deployment(
        path, folder / "run", (port,), tuple(ENGINES), (GATEWAY,), {}, unused, tuple(dict.fromkeys(hosts))
    )


def _write_keys(folder: Path) -> None:
    """The file of the mesh, and beside it each key as its owner has it."""
    now = time.time()
    made = [
        make_key(HONEST, KeyLimits(), now),
        make_key(RIVAL, KeyLimits(), now),
        make_key(LIMITED, FEW, now),
        make_key(EXPIRED, KeyLimits(), now, now - 1.0),
    ]
    change_keys(folder / KEYS, lambda _: tuple(key for key, _ in made))
    for key, text in made:
        key_path(folder, key.name).write_text(text)


def _hosts(hosts: tuple[str, ...]) -> list[str]:
    first = free_range(PORTS_OF_HOST * len(hosts))
    return [
        f'[hosts.{host}]\naddress = "127.0.0.1"\nbase_port = {first + number * PORTS_OF_HOST}'
        for number, host in enumerate(hosts)
    ]


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncIterator[bool]:
    """A file system of its own under the folder, which an attack can fill; False: that is not allowed here."""
    await asyncio.to_thread(folder.mkdir, mode=0o700)
    has_disk = os.getuid() == 0 and await _run(
        "mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "none", str(folder)
    )
    try:
        yield has_disk
    finally:
        if has_disk:
            await _run("umount", "-l", str(folder))


async def _run(*command: str) -> bool:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
    return done.returncode == 0


@asynccontextmanager
async def standing(deployment: Deployment, cache: Path) -> AsyncIterator[RunningMesh]:
    """The mesh on its small disk, until the end of the block. Raise `UserError` if it does not start."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(small_disk(deployment.runtime))
        yield await stack.enter_async_context(running(deployment, cache))
