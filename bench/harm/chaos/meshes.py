"""The meshes that scenarios run on."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.harm.deployment import MODEL, Deployment, Tables, write
from bench.harm.harm import PLAIN
from bench.live.ports import free_ports
from engines.costs.profiles import ProfileFile
from mesh.topology.schema import LOCAL_HOST
from mesh.wire.status import DecodeCost, PrefillCost
from router.api.http.server import ADMIN_PORT_OFFSET

OTHER_MODEL = "other"  # the same weights by another name, where services are placed
PLACEMENT = "placement"
WORDY_MODEL = MODEL + "-" * 250  # the same by a name that makes every event of a stream long
MAX_CONTEXT = 4096  # tokens
KV_TOKENS = 32768  # that each engine's pool holds
TINY_KV_BYTES = 512  # of a token of the tiny model: 2 layers, K and V of 2 heads of 16 float32
ENGINES = {"prefill": "prefill", "decode-0": "multiplex", "decode-1": "multiplex"}  # roles by id
GATEWAYS = ("first", "second")
FRONT = "front"  # the host of the gateways, where engines have their own
PROFILE = "profile.toml"
REPOSITORY = Path(__file__).parents[3]
SERVICE = {"ttft_ms": 30000, "min_ttft_ms": 5, "tpot_ms": 100, "max_context": MAX_CONTEXT}
HELD = {"prefill": (MODEL, OTHER_MODEL), "decode-0": (MODEL,), "decode-1": (OTHER_MODEL,)}  # services, where placed


@dataclass(frozen=True, slots=True)
class Shape:
    """What is special about a mesh.

    ``is_relayed``: every message between two processes passes the harness, KV blocks too, and nothing moves unasked.
    ``has_hosts``: each engine has a host of its own, named after it. ``is_placed``: there are two services, and a
    placement daemon that decides nothing by itself.
    """

    engines: Mapping[str, str]
    gateways: tuple[str, ...] = GATEWAYS
    is_relayed: bool = False
    is_fast: bool = False
    has_hosts: bool = False
    is_placed: bool = False

    def host_of(self, process: str) -> str:
        if not self.has_hosts:
            return LOCAL_HOST
        return process if process in self.engines else FRONT


HOSTS, PLACED, RELAYED = "hosts", "placed", "relayed"
SHAPES = {
    PLAIN: Shape(ENGINES),  # as a user would write it
    HOSTS: Shape(ENGINES, has_hosts=True),
    PLACED: Shape(ENGINES, is_placed=True),
    RELAYED: Shape(ENGINES, GATEWAYS[:1], is_relayed=True),
}
REFERENCE = Shape({"engine": "multiplex"}, GATEWAYS[:1], is_fast=True)  # nothing happens to it


def deploy(folder: Path, model: Path, shape: Shape) -> Deployment:
    """Write the topology of a mesh, and all that its engines need, into the folder."""
    (folder / PROFILE).write_text(_profile(shape.is_fast).text())
    (folder / "hangs").mkdir()
    folders = {engine: folder / engine for engine in shape.engines} if shape.is_relayed else {}
    service = {"model": str(model), **SERVICE}
    tables: Tables = {f"services.{MODEL}": {**service, "aliases": [WORDY_MODEL]}}
    if shape.is_placed:
        tables |= {f"services.{OTHER_MODEL}": service, "placement": {"interval_s": 600}}
    for engine in shape.engines:
        tables[f"engines.{engine}"] = _engine(folder, engine, shape)
    for name, port in zip(shape.gateways, free_ports(len(shape.gateways)), strict=True):
        tables[f"gateways.{name}"] = {
            "port": port,
            "admin_port": port + ADMIN_PORT_OFFSET,
            "host": shape.host_of(name),
        }
    if not (shape.is_relayed or shape.is_fast):
        tables["rescheduling"] = {}
    tables["transfer"] = {"checksum": True, "transport": "tcp" if shape.is_relayed else "auto"}
    hosts = dict.fromkeys(map(shape.host_of, (*shape.gateways, *shape.engines))) if shape.has_hosts else ()
    return Deployment(write(folder, tables, tuple(hosts)), folders)


def _engine(folder: Path, name: str, shape: Shape) -> dict[str, object]:
    return {
        "role": shape.engines[name],
        "backend": "simulated",  # steps are modelled, and their tokens hang on every byte of KV
        "profile": PROFILE,
        "kv_memory": f"{KV_TOKENS * TINY_KV_BYTES}B",
        "host": shape.host_of(name),
        "python": str(_interpreter(folder, name, shape)),
        **({"services": HELD[name]} if shape.is_placed else {}),
    }


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


def _interpreter(folder: Path, engine: str, shape: Shape) -> Path:
    """Runs the engine as ever, but in `bench.harm.chaos.hanging`, and a relayed one in a runtime folder of its own."""
    script = folder / f"python-{engine}"
    runtime = f'MESHSERVE_RUNTIME_DIR="{folder / engine}" ' if shape.is_relayed else ""
    script.write_text(
        f'#!/bin/sh\n{runtime}PYTHONPATH="{REPOSITORY}:$PYTHONPATH" '
        f'exec "{sys.executable}" -m bench.harm.chaos.hanging "{folder / "hangs" / engine}" "$@"\n'
    )
    script.chmod(0o755)
    return script
