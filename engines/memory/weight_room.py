"""Decides whether an engine has room for the weights of one more service.

A service that is loaded while another is served must not take the memory that the latter needs: a machine that runs out
of it ends processes, and requests with them. So room is asked for before anything is read.
"""

from collections.abc import Callable, Mapping

from mesh.errors import UserError
from mesh.sizes import in_words
from mesh.topology.schema import EngineSpec


class WeightRoom:
    """Counts the memory for weights. ``weight_memory`` of the topology, and what the device has to give now:
    ``free_bytes``, if somebody knows.

    Services are there from `take` until `give_back`. Bytes are those of weights as they lie in memory.
    """

    def __init__(self, engine: EngineSpec, free_bytes: Callable[[], int | None] = lambda: None) -> None:
        self._engine = engine.id
        self._limit = engine.weight_memory_bytes
        self._free_bytes = free_bytes
        self._held: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<WeightRoom of {self._engine}: {self._held} of {self._limit}>"

    @property
    def held(self) -> Mapping[str, int]:
        return self._held

    def take(self, service: str, num_bytes: int) -> None:
        """Raise `UserError` if they do not fit, and by how much."""
        beside = sum(held for name, held in self._held.items() if name != service)
        if self._limit is not None and beside + num_bytes > self._limit:
            raise UserError(
                f"engines.{self._engine}: weights of {service} take {in_words(num_bytes)}, beside {in_words(beside)} "
                f"of {self._others(service)}: {in_words(beside + num_bytes - self._limit)} more than its "
                f"weight_memory, {in_words(self._limit)}"
            )
        free = self._free_bytes()
        if free is not None and num_bytes > free:
            raise UserError(
                f"engines.{self._engine}: weights of {service} take {in_words(num_bytes)}, and its device has "
                f"{in_words(free)} free; unload a service, or place it elsewhere"
            )
        self._held[service] = num_bytes

    def give_back(self, service: str) -> None:
        self._held.pop(service, None)

    def _others(self, service: str) -> str:
        return ", ".join(name for name in self._held if name != service) or "others"
