"""Decides whether the host has room for weights that are read ahead (`staging_memory`)."""

from collections.abc import Callable

from mesh.errors import UserError
from mesh.sizes import in_words
from mesh.topology.schema import EngineSpec


class StagingRoom:
    """Counts the bytes of weights that wait in the host's memory. ``free_bytes``: what the host has to give now, if
    somebody knows. Services are there from `take` until `give_back`.
    """

    def __init__(self, engine: EngineSpec, free_bytes: Callable[[], int | None] = lambda: None) -> None:
        self._engine = engine.id
        self._limit = engine.staging_memory_bytes
        self._free_bytes = free_bytes
        self._held: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<StagingRoom of {self._engine}: {self._held} of {self._limit}>"

    def take(self, service: str, num_bytes: int) -> None:
        """Raise `UserError` if they do not fit, and by how much."""
        what = f"engines.{self._engine}: to stage weights of {service} takes {in_words(num_bytes)}"
        needed = num_bytes + sum(held for name, held in self._held.items() if name != service)
        if needed > self._limit:
            raise UserError(f"{what}: {in_words(needed - self._limit)} more than its staging_memory leaves")
        free = self._free_bytes()
        if free is not None and num_bytes > free:
            raise UserError(f"{what}, and its host has {in_words(free)} free")
        self._held[service] = num_bytes

    def give_back(self, service: str) -> None:
        self._held.pop(service, None)
