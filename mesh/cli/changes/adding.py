"""Carries out ``mesh services add`` and ``remove``: engines load or unload, and gateways get successors.

Order of adding: what is added is written where every process reads it when it starts; the placement daemon starts
again; engines load; gateways get successors, which know the services. What fails undoes all. Removing goes the other
way: gateways know the services no more, and then engines let go of them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mesh.added.stored import store_tables
from mesh.added.tables import AddedTable, on_engines
from mesh.addresses import owner_of, supervisor_id
from mesh.cli.arguments import print_line
from mesh.cli.cluster import collect, hear_all, visitor
from mesh.errors import CommandError
from mesh.sockets.sockets import Sockets
from mesh.topology.schema import Topology
from mesh.wire.control import LoadService, ProcessState, Renew, SetRunning, UnloadService
from mesh.wire.messages import BroadcastMessage, SupervisorMessage
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus

REPEAT_S = 2.0  # until an order is repeated that nobody seems to have heard


@dataclass(frozen=True, slots=True)
class Here:
    """A mesh, and which of its hosts this machine is: its processes are changed, in ``timeout_s`` altogether.

    ``replaces``: engines that cannot load a service as they are.
    """

    topology: Topology
    host: str
    timeout_s: float
    replaces: bool = False


async def add_tables(here: Here, wanted: Topology, before: Sequence[AddedTable], new: Sequence[AddedTable]) -> None:
    """Return once all gateways here serve them. Raise `CommandError`: all is as before.

    ``wanted``: the topology with them.
    """
    topology = here.topology
    async with visitor(topology) as sockets:
        change = _Change(here, sockets)
        await change.begin()
        loaded: list[tuple[str, str]] = []
        with change.stored(before, (*before, *new)):
            await change.renew_daemon()
            kept = [await change.load(wanted, one, loaded) for one in new]
            store_tables(topology, (*before, *kept))
            await change.renew_gateways()
    for one in new:
        engines = ", ".join(engine for engine, service in loaded if service == one.name) or "engines of other hosts"
        print_line(f"{one.name} is served now by {engines}; `mesh services remove {one.name}` takes it away")


async def remove_tables(here: Here, before: Sequence[AddedTable], names: Sequence[str]) -> None:
    """Return once nothing of them is left. Raise `CommandError`: gateways could not be replaced, and all is as before;
    or requests still run when time is up.
    """
    async with visitor(here.topology) as sockets:
        change = _Change(here, sockets)
        await change.begin()
        with change.stored(before, [one for one in before if one.name not in names]):
            await change.renew_daemon()
            await change.renew_gateways()
        await change.unload(names)
    for name in names:
        print_line(f"{name} is not served any more")


class _Change:
    """One change of what runs here."""

    def __init__(self, here: Here, sockets: Sockets[SupervisorMessage]) -> None:
        self._here = here
        self._topology = topology = here.topology
        self._sockets = sockets
        self._supervisor = supervisor_id(here.host)
        self._daemons = [one.id for one in (topology.placement,) if one is not None and one.host == here.host]
        self._gateways = [gateway.id for gateway in topology.gateways if gateway.host == here.host]
        self._engines = {engine.id for engine in topology.own_engines if engine.host == here.host}
        self._renewed: set[str] = set()  # processes that know what is stored
        self._ends_at = asyncio.get_running_loop().time() + here.timeout_s

    async def begin(self) -> None:
        """Wait for what was asked for before. Raise `CommandError` if there is nobody to replace processes."""
        if not isinstance((await collect(self._topology, self._sockets)).get(self._supervisor), SupervisorStatus):
            raise CommandError(f"nobody supervises host {self._here.host}: `mesh up {self._topology.path}` does")
        async for name, status in self._statuses(lambda: None, "processes are still being replaced"):
            if name == self._supervisor and isinstance(status, SupervisorStatus) and not status.renewing:
                return

    @contextmanager
    def stored(self, before: Sequence[AddedTable], after: Sequence[AddedTable]) -> Iterator[None]:
        """Store what is there from now on. If what is done with it fails, store what was there before, and let those
        who heard of the change hear of that.
        """
        store_tables(self._topology, after)
        try:
            yield
        except BaseException:
            store_tables(self._topology, before)
            self._undo({one.name for one in after} - {one.name for one in before})
            raise

    def _undo(self, names: Collection[str]) -> None:
        """Take services away everywhere, and let who knows of the change read the deployment again."""
        for engine in self._engines:
            for name in names:
                self._sockets.send(engine, UnloadService(name))
        for process in self._renewed - self._engines:
            self._sockets.send(self._supervisor, Renew(process))
        for engine in self._renewed & self._engines:
            self._sockets.send(self._supervisor, SetRunning(engine, True))  # unless it does

    async def load(self, wanted: Topology, one: AddedTable, loaded: list[tuple[str, str]]) -> AddedTable:
        """Let engines load a service, and note which did. Return its table with those of engines that have it."""
        name = one.name
        tables = {engine.id: engine.pool for engine in wanted.own_engines if name in engine.services}
        heard = await collect(self._topology, self._sockets)
        engines = {engine for engine in tables.keys() & self._engines if _is_ready(heard.get(engine))}
        if not engines and not tables.keys() - self._engines:
            raise CommandError(f"{name}: none of {', '.join(sorted(tables))} runs")
        if not engines:
            return on_engines(one, dict.fromkeys(tables.values()))
        print_line(f"loading {name} on {', '.join(sorted(engines))}")
        known = {engine: _num_errors(heard[engine], name) for engine in engines}
        failed = await self._until_loaded(name, known)
        if failed and self._here.replaces:
            print_line(f"replacing {', '.join(sorted(failed))}, one at a time: {next(iter(failed.values()))}")
            await self._renew(failed)
            failed = {}
        loaded += [(engine, name) for engine in sorted(engines - failed.keys())]
        lacking = {tables[engine] for engine in failed}
        kept = [table for table in dict.fromkeys(tables.values()) if table not in lacking]
        if failed and (one.engines is not None or not kept):
            engine, reason = next(iter(failed.items()))
            raise CommandError(f"{engine} did not load {name}: {reason} (--replace does that, one engine at a time)")
        for engine, reason in failed.items():
            print_line(f"{engine} does not serve {name}: {reason}")
        for engine in [engine for engine in engines - failed.keys() if tables[engine] in lacking]:
            loaded.remove((engine, name))  # what starts again reads the table, which is one for all its engines
            self._sockets.send(engine, UnloadService(name))
        return on_engines(one, kept)

    async def _until_loaded(self, name: str, known: Mapping[str, int]) -> dict[str, str]:
        """Wait for all engines. Return why some did not load it. ``known``: the numbers of their failures before."""
        left, failed = set(known), dict[str, str]()

        def tell() -> None:
            for engine in left:
                self._sockets.send(engine, LoadService(name))

        async for engine, status in self._statuses(tell, f"{name} is not loaded everywhere"):
            if engine not in left or not isinstance(status, EngineStatus):
                continue
            if any(one.name == name and not one.is_leaving for one in status.services):
                left.discard(engine)
            elif _num_errors(status, name) > known[engine]:
                failed[engine] = next(one.reason for one in status.failed_loads if one.service == name)
                left.discard(engine)
            if not left:
                return failed
        raise AssertionError("statuses end by a timeout")

    async def unload(self, names: Sequence[str]) -> None:
        """Return once no engine has anything of them. Engines are told when gateways have sent all that they were asked
        for, or when time is up.
        """
        what = f"{', '.join(names)}: no requests are taken any more, but some still run"
        left = {(engine, name) for engine in self._engines for name in names}

        def tell() -> None:
            for engine, name in left:
                self._sockets.send(engine, UnloadService(name))

        try:
            await self._answered(names, what)
        finally:
            heard = await collect(self._topology, self._sockets)
            left &= {(engine, name) for engine in heard for name in names if _has(heard[engine], name)}
            tell()
        if left:
            async for engine, status in self._statuses(tell, what):
                left.difference_update([(engine, name) for name in names if not _has(status, name)])
                if not left:
                    return

    async def _answered(self, names: Collection[str], what: str) -> None:
        """Return once predecessors of gateways have ended, or have no request of these services. What came to one while
        it was succeeded is counted by then.
        """
        await asyncio.sleep(self._topology.timing.lease_s)
        asked: dict[str, int] = {}
        async for name, status in self._statuses(lambda: None, what):
            if isinstance(status, GatewayStatus) and owner_of(name) in self._gateways:
                tallies = [tally for tally in status.services if tally.name in names]
                asked[name] = sum(tally.arrived - tally.ended - tally.gone for tally in tallies)
            elif name == self._supervisor and isinstance(status, SupervisorStatus):
                running = [child.process for child in status.children if owner_of(child.process) in self._gateways]
                if not any(asked.get(process, 1) for process in running):
                    return

    async def renew_daemon(self) -> None:
        """Let the placement daemon, if it is here, read the deployment again."""
        await self._renew(self._daemons)

    async def renew_gateways(self) -> None:
        """Return once each gateway has a successor, which serves."""
        await self._renew(self._gateways)

    async def _renew(self, processes: Collection[str]) -> None:
        if not processes:
            return
        heard = await hear_all(self._topology, self._sockets)
        before = {status.pid for status in heard.values()}
        left = {owner_of(name) for name in heard if owner_of(name) in processes}
        known = _num_failures(heard.get(self._supervisor))
        self._renewed |= left
        for process in sorted(left):
            self._sockets.send(self._supervisor, Renew(process))
        if left:
            async for name, status in self._statuses(lambda: None, f"not renewed: {', '.join(sorted(left))}"):
                if isinstance(status, SupervisorStatus):
                    for failed in status.not_renewed if name == self._supervisor else ():
                        if failed.process in left and failed.number > known:
                            self._renewed -= {failed.process} - self._engines
                            raise CommandError(failed.reason)
                elif owner_of(name) in left and status.pid not in before and _serves(status):
                    left.discard(owner_of(name))
                if not left:
                    return

    async def _statuses(self, tell: Callable[[], None], what: str) -> AsyncIterator[tuple[str, BroadcastMessage]]:
        """What is heard until time is up: then raise `CommandError` that begins with ``what``. Orders are repeated."""
        loop = asyncio.get_running_loop()
        tell()
        told_at = loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends_at):
                async for sender, status in self._sockets.broadcasts():
                    if loop.time() - told_at > REPEAT_S:
                        tell()
                        told_at = loop.time()
                    yield sender.process, status
        raise CommandError(f"{what} after {self._here.timeout_s:g} s (`mesh status`, `mesh logs`)")


def _has(status: BroadcastMessage | None, service: str) -> bool:
    """Return whether an engine has anything of it, if only to say that it could not load it."""
    if not isinstance(status, EngineStatus):
        return False
    return any(one.name == service for one in status.services) or _num_errors(status, service) > 0


def _is_ready(status: BroadcastMessage | None) -> bool:
    return isinstance(status, EngineStatus) and status.state is ProcessState.READY


def _num_errors(status: BroadcastMessage, service: str) -> int:
    """The number of the last load of a service that failed; 0: none did."""
    failed = status.failed_loads if isinstance(status, EngineStatus) else ()
    return next((one.number for one in failed if one.service == service), 0)


def _num_failures(status: BroadcastMessage | None) -> int:
    """The number of the last renewal that failed; 0: none did."""
    failed = status.not_renewed if isinstance(status, SupervisorStatus) else ()
    return max((one.number for one in failed), default=0)


def _serves(status: BroadcastMessage) -> bool:
    return not isinstance(status, EngineStatus | GatewayStatus) or status.state is ProcessState.READY
