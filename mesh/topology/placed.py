"""The processes of a topology, each with its place in the file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mesh.topology.lines import KeyPath
from mesh.topology.schema import EngineSpec, GatewaySpec, PlacementSpec

P = TypeVar("P", EngineSpec, GatewaySpec, PlacementSpec, covariant=True)


@dataclass(frozen=True, slots=True)
class Placed(Generic[P]):
    """A process and the table of the file that asks for it."""

    table: KeyPath
    spec: P


Processes = Sequence[Placed[EngineSpec] | Placed[GatewaySpec] | Placed[PlacementSpec]]


def engine_tables(processes: Processes) -> dict[KeyPath, EngineSpec]:
    """One engine of each table."""
    return {placed.table: placed.spec for placed in processes if isinstance(placed.spec, EngineSpec)}
