"""The LoRA adapters that vLLM's workers hold: they come and go between steps, from other threads than the steps'."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

from engines.adapters.folder import AdapterFolder
from engines.adapters.places import Places, largest_rank
from engines.adapters.ranks import RANK_OPTION
from engines.models.errors import ModelError

ENABLING = ("enable_lora", "max_loras", "max_cpu_loras", "lora_target_modules")  # of vLLM's options


class InTurn:
    """A lock that is had in the order in which it was asked for, if two threads ask: neither waits for two turns."""

    def __init__(self) -> None:
        self._next, self._lock = Lock(), Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._next:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class Workers(Protocol):
    """vLLM's executor."""

    def collective_rpc(self, method: str, *, args: tuple[object, ...]) -> list[Any]: ...


class ServiceAdapters:
    """The `AdapterLoader` of several models."""

    def __init__(self, of_services: Mapping[str, "VllmAdapters"]) -> None:
        self._of_services = of_services

    def __repr__(self) -> str:
        return f"<ServiceAdapters {dict(self._of_services)}>"

    def add(self, service: str, key: str, adapter: AdapterFolder) -> None:
        self._of_services[service].add(service, key, adapter)

    def remove(self, service: str, key: str) -> None:
        self._of_services[service].remove(service, key)


class VllmAdapters:
    """The `AdapterLoader` of one model. ``turn``: had by whoever lets the workers compute. ``num_workers`` 1: it is in
    this process, and reads files while it computes.
    """

    def __init__(self, workers: Workers, turn: InTurn, rank: int, num_workers: int = 1) -> None:
        self._workers = workers
        self._turn = turn
        self._rank = rank
        self._is_here = num_workers == 1
        self._numbers: dict[str, int] = {}  # by key
        self._last = 0
        self._gone: deque[int] = deque()  # removed, and still in vLLM's memory

    def __repr__(self) -> str:
        return f"<VllmAdapters {sorted(self._numbers)}>"

    def add(self, service: str, key: str, adapter: AdapterFolder) -> None:
        """Load one. One thread at a time may call it. Raise `ModelError` if it cannot be had."""
        if (rank := largest_rank(adapter.config)) > self._rank:
            raise ModelError(f"{adapter.path}: has rank {rank}, and {service} takes up to {self._rank}")
        self._last += 1
        if self._is_here:
            self._do("read_adapter", self._last, adapter)
        with self._turn.held():
            self.forget_gone()
            if not self._is_here:
                self._do("read_adapter", self._last, adapter)
            self._do("place_adapter", self._last, adapter)
        self._numbers[key] = self._last

    def _do(self, method: str, number: int, adapter: AdapterFolder) -> None:
        faults = self._workers.collective_rpc(method, args=(number, adapter))
        if fault := next(filter(None, faults), ""):
            self._gone.append(number)
            raise ModelError(f"{adapter.path}: {fault}")

    def remove(self, service: str, key: str) -> None:  # a model is one service's
        """Forget one. Any thread may call it; it does not wait for the step that is computed."""
        if (number := self._numbers.pop(key, None)) is not None:
            self._gone.append(number)

    def forget_gone(self) -> None:
        """Let vLLM forget what was removed. For those whose turn it is."""
        while self._gone:
            self._workers.collective_rpc("drop_adapter", args=(self._gone.popleft(),))

    def number(self, key: str) -> int:
        """Return what vLLM knows an adapter by; 0: none."""
        return self._numbers[key] if key else 0


def arguments(places: Places | None, projections: Sequence[str]) -> Mapping[str, object]:
    """Return what vLLM's `EngineArgs` are told of places. Only ``projections`` have them: not embeddings, nor heads."""
    if places is None:
        return {}
    return {
        "enable_lora": True,
        "max_loras": places.count,
        "max_cpu_loras": places.count,
        RANK_OPTION: places.rank,
        "lora_target_modules": list(projections),
    }
