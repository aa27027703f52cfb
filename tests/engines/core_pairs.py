"""Pairs of virtual engines, and what they hold and say."""

from engines.memory.block_pool import BlockPool
from mesh.wire.control import Role
from mesh.wire.requests import (
    RefusalCode,
    Refused,
)
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import SERVICE

SEEDS = 6


def two_engines(seed: int = 0, **options: object) -> VirtualMesh:
    mesh = VirtualMesh(seed, **options)  # type: ignore[arg-type]
    mesh.add("prefill", Role.PREFILL)
    mesh.add("decode")
    return mesh


def pool(mesh: VirtualMesh, engine: str) -> BlockPool:
    return mesh.engines[engine].core._services[SERVICE].pool


def refusals(mesh: VirtualMesh) -> list[RefusalCode]:
    return [answer.code for answer in mesh.answers if isinstance(answer, Refused)]
