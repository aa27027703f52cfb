"""Carries out what operators want of adapters, whether a command or a client of the API brings it."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from mesh.suggestions import suggestion
from mesh.topology.schema import Topology
from mesh.wire.adapters import AdapterAnswer, AddAdapter, AddedAdapter, RemoveAdapter
from router.adapters.added import AddedAdapters
from router.adapters.adding import AddingError, adapter_to_add
from router.adapters.kept import KeptAdapters

MOST_WAITING: Final = 16  # orders of commands; those of the API have its bounds

log = structlog.get_logger()


class AdapterExistsError(AddingError):
    """The name is that of another one, which is to stay."""


class AdapterUnknownError(AddingError):
    """There is no such adapter to remove."""


class AdapterConflictError(AddingError):
    """Another gateway was told something else meanwhile."""


class ServesAdapters(Protocol):
    """What serves adapters. A gateway's `Router` does."""

    @property
    def added(self) -> AddedAdapters:
        """Return those that were added."""

    def serve_adapter(self, wanted: AddedAdapter) -> bool:
        """Serve it from now on, in all gateways. Return whether that is so now."""


class AdapterOrders:
    """One gateway's. ``answer``: tells a process of the mesh what came of its order."""

    def __init__(
        self,
        topology: Topology,
        router: ServesAdapters,
        kept: KeptAdapters,
        answer: Callable[[str, AdapterAnswer], None],
    ) -> None:
        self._topology = topology
        self._kept = kept
        self._router = router
        self._answer = answer
        self._turn = asyncio.Lock()  # two that read files at a time could take the same name
        self._waiting: asyncio.Queue[tuple[str, AddAdapter | RemoveAdapter]] = asyncio.Queue(MOST_WAITING)

    def __repr__(self) -> str:
        return f"<AdapterOrders {self._waiting.qsize()} waiting>"

    async def add(self, order: AddAdapter, by: str, *, repeats: bool = False) -> None:
        """Serve an adapter. It is read now, and loaded on engines as memory allows. Raise `AddingError`.

        ``repeats``: it may have been said before, and then is so.
        """
        name = order.service
        async with self._turn:
            served = self._router.added.served
            before = None if order.in_place else served.get(name)
            if before is not None and not repeats:
                raise _exists(name)
            wanted = await asyncio.to_thread(adapter_to_add, self._topology, served, name, order.path, order.base)
            if before is not None and wanted.adapter != before.adapter:
                raise _exists(name)
            await self._serve(wanted, by)

    async def remove(self, name: str, by: str, *, repeats: bool = False) -> None:
        """Take an adapter away: requests that run end as they would. Raise `AddingError`."""
        served, known = self._router.added.served, self._router.added.known
        if repeats and name in known and known[name].is_removed:
            return
        if name not in served:
            raise AdapterUnknownError("lora_name", f"The adapter {name!r} {self._why_unknown(name)}")
        before = served[name]
        await self._serve(AddedAdapter(before.adapter, before.base, 0, is_removed=True), by)

    def _why_unknown(self, name: str) -> str:
        if any(name == service.name for service in self._topology.adapters):
            return "is of the deployment's file, and stays"
        served = self._router.added.served
        return f"is not served; {suggestion(name, served)}" if served else "is not served"

    async def _serve(self, wanted: AddedAdapter, by: str) -> None:
        """It is on disk when this returns."""
        name = wanted.adapter.service
        log.info("an operator changed adapters", by=by, adapter=name, base=wanted.base, removed=wanted.is_removed)
        if not self._router.serve_adapter(wanted):
            raise AdapterConflictError("lora_name", f"The adapter {name!r} was changed by others meanwhile")
        await self._kept.keep()

    # --- orders of the mesh -------------------------------------------------------------------------------------------

    def take(self, asker: str, order: AddAdapter | RemoveAdapter) -> None:
        """Carry an order out when its turn comes, and answer it. A command repeats what is not answered."""
        try:
            self._waiting.put_nowait((asker, order))
        except asyncio.QueueFull:
            self._answer(asker, AdapterAnswer(order.service, "the gateway has too many such orders; try again"))

    async def run(self) -> None:
        """Run and never return; cancel it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kept.run())
            while True:
                asker, order = await self._waiting.get()
                self._answer(asker, AdapterAnswer(order.service, await self._problem(order, asker)))

    async def _problem(self, order: AddAdapter | RemoveAdapter, by: str) -> str:
        """Carry it out. Return why that cannot be; empty: it is so now."""
        try:
            if isinstance(order, AddAdapter):
                await self.add(order, by, repeats=True)
            else:
                await self.remove(order.service, by, repeats=True)
        except AddingError as error:
            return str(error)
        except OSError as error:  # of files that change meanwhile
            return f"{order.service}: cannot be read: {error}"
        return ""


def _exists(name: str) -> AdapterExistsError:
    return AdapterExistsError("lora_name", f"The adapter {name!r} is served already")
