"""Adds adapters to a running mesh, and removes them: a gateway is told, which reads them and tells the others."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mesh.addresses import owner_of
from mesh.cli.arguments import print_line
from mesh.cli.cluster import hear_all, require_running, visitor
from mesh.errors import CommandError, UserError
from mesh.sockets.sockets import Sockets
from mesh.suggestions import suggestion
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.topology.stores import AdaptersSpec
from mesh.wire.adapters import AdapterAnswer, AddAdapter, AddedAdapter, RemoveAdapter
from mesh.wire.bounds import MAX_NAME
from mesh.wire.control import ProcessState
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import GatewayStatus

ASK_S = 5.0  # until an order is repeated: its files are read meanwhile

Served = Mapping[str, AddedAdapter]


async def add_adapter(file: Path, name: str, path: str, base: str | None, timeout_s: float, *, in_place: bool) -> None:
    """Return once all gateways serve it. Raise `CommandError` if it cannot be served."""
    topology, folder = _open(file, name)
    services = [service.name for service in topology.services]
    if base is not None and base not in services:
        raise UserError(f"{file}: no service {base!r}; {suggestion(base, services)}")
    order = AddAdapter(name, _as_gateways_see(folder, path), base, in_place)
    async with visitor(topology) as sockets:
        served = await _tell(topology, sockets, order, timeout_s)
        if name not in served:
            raise CommandError(f"{name} is not served: it was removed again meanwhile")
    print_line(f"{name} is served now, by the engines of {served[name].base}; `mesh unload {name}` takes it away")


async def remove_adapter(file: Path, name: str, timeout_s: float) -> None:
    """Return once no gateway serves it. Raise `CommandError` if it cannot be removed."""
    topology, _ = _open(file, name)
    async with visitor(topology) as sockets:
        await _tell(topology, sockets, RemoveAdapter(name), timeout_s)
    print_line(f"{name} is not served any more; requests that run end as they would")


def _open(file: Path, name: str) -> tuple[Topology, AdaptersSpec]:
    topology = load(file)
    engines = [engine.id for engine in topology.engines]
    if name in engines:
        raise UserError(f"{name} is an engine: which service? or, of an adapter, which name?")
    if topology.added is None:
        raise UserError(f'{file}: adds no adapters; name their folder: [adapters] folder = "adapters"')
    if len(name) > MAX_NAME:
        raise UserError(f"no adapter has a name of {len(name)} characters")
    require_running(topology, file)
    return topology, topology.added


def _as_gateways_see(spec: AdaptersSpec, path: str) -> str:
    """A path that is seen from here, and not from the folder of adapters, is made absolute."""
    if len(path) > MAX_NAME:
        raise UserError(f"--adapter: no path of {len(path)} characters is read")
    is_here = Path(path).is_dir() and not (spec.folder / path).is_dir()
    return str(Path(path).absolute()) if is_here else path


async def _tell(
    topology: Topology, sockets: Sockets[SupervisorMessage], order: AddAdapter | RemoveAdapter, timeout_s: float
) -> Served:
    """Tell one gateway, and wait for the others. Return what they serve then."""
    sockets.expect_answers()
    statuses = (await hear_all(topology, sockets)).items()
    gateways = {name: one for name, one in statuses if isinstance(one, GatewayStatus) and _takes_orders(one)}
    if not gateways:
        raise CommandError("no gateway runs, or all are silent")
    if isinstance(order, RemoveAdapter) and all(order.service not in _served(one) for one in gateways.values()):
        _check_is_served(topology, order.service, {name for one in gateways.values() for name in _served(one)})
    gateway = min(gateways)
    answer = await _ask(sockets, gateway, order, timeout_s)
    if answer is None:
        raise CommandError(f"{gateway} has not answered after {timeout_s:g} s (`mesh logs {owner_of(gateway)}`)")
    if answer.problem:
        raise CommandError(f"{order.service}: {answer.problem}")
    return await _agreed(topology, sockets, order.service, gateway, {*gateways})


def _takes_orders(status: GatewayStatus) -> bool:
    return status.state is not ProcessState.DRAINING


def _served(status: GatewayStatus) -> Served:
    return {name: one for name, one in status.adapters.items() if not one.is_removed}


def _check_is_served(topology: Topology, name: str, served: set[str]) -> None:
    if any(name == service.name for service in topology.adapters):
        raise CommandError(f"{name} is an adapter of {topology.path}, and stays; take it out there")
    raise CommandError(f"no adapter {name!r} was added; {suggestion(name, served)}")


async def _ask(
    sockets: Sockets[SupervisorMessage], gateway: str, order: AddAdapter | RemoveAdapter, timeout_s: float
) -> AdapterAnswer | None:
    """Say it until there is an answer; None: none came in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                sockets.send(gateway, order)
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASK_S):
                        return await _answer(sockets, gateway, order.service)
    return None


async def _answer(sockets: Sockets[SupervisorMessage], gateway: str, service: str) -> AdapterAnswer:
    async for sender, answer in sockets.answers():
        if sender.process == gateway and isinstance(answer, AdapterAnswer) and answer.service == service:
            return answer
    raise CommandError("the sockets were closed")


async def _agreed(
    topology: Topology, sockets: Sockets[SupervisorMessage], service: str, told: str, gateways: set[str]
) -> Served:
    """Wait until all gateways say what the one says that was told. Return what that one serves."""
    said: dict[str, GatewayStatus] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(topology.timing.lease_s + topology.timing.reply_s):
            async for sender, status in sockets.broadcasts():
                if isinstance(status, GatewayStatus):
                    said[sender.process] = status
                if told in said and not _behind(said, service, told, gateways):
                    return _served(said[told])
    late = _behind(said, service, told, gateways) if told in said else [told]
    raise CommandError(f"{', '.join(late)} did not say so in time; what was told goes on (`mesh status`)")


def _behind(said: Mapping[str, GatewayStatus], service: str, told: str, gateways: set[str]) -> list[str]:
    """Those that have not heard of it."""
    wanted = said[told].adapters.get(service)
    return [
        name for name in sorted(gateways) if name not in said or not _knows(said[name].adapters.get(service), wanted)
    ]


def _knows(known: AddedAdapter | None, wanted: AddedAdapter | None) -> bool:
    return wanted is None or (known is not None and known.version >= wanted.version)
