"""``mesh load`` and ``mesh unload``: which services a running engine serves, and which adapters the mesh serves."""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import add_timeout, print_line
from mesh.errors import CommandError, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology
    from mesh.wire.status import EngineStatus, FailedLoad, ServiceStatus

LOAD = "mesh load [FILE] ENGINE SERVICE | mesh load [FILE] NAME --adapter PATH [--base SERVICE]"
UNLOAD = "mesh unload [FILE] ENGINE SERVICE [--last] [--pause] | mesh unload [FILE] ADAPTER"
WORDS = "FILE ENGINE SERVICE"
LOAD_HELP = "the deployment; which engine, and which of the deployment's services; or the name of an adapter"
UNLOAD_HELP = "the deployment; which engine, and which of its services; or which adapter"
LOAD_S, UNLOAD_S = 600.0, 60.0

Work = Callable[["Topology", str, str, argparse.Namespace], Coroutine[Any, Any, None]]


def register(subparsers: "Subparsers") -> None:
    parser = _register(
        subparsers, "load", LOAD, "let a running engine serve one more service, or the mesh an adapter", LOAD_HELP
    )
    parser.add_argument("--adapter", metavar="PATH", help="serve the LoRA adapter in this folder; see [adapters]")
    parser.add_argument("--base", metavar="SERVICE", help="whose model it changes (default: the one that it fits)")
    parser.add_argument("--in-place", action="store_true", help="replace the adapter that has this name")
    add_timeout(parser, LOAD_S)
    parser.set_defaults(run=_run_load)
    parser = _register(
        subparsers, "unload", UNLOAD, "take a service from a running engine, or an adapter from the mesh", UNLOAD_HELP
    )
    parser.add_argument("--last", action="store_true", help="take it away even if no other engine serves it")
    parser.add_argument("--pause", action="store_true", help="weights go first; what runs waits for another engine")
    add_timeout(parser, UNLOAD_S)
    parser.set_defaults(run=_run_unload)


def _register(subparsers: "Subparsers", name: str, usage: str, text: str, words_help: str) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, usage=usage, help=text)
    parser.add_argument("words", nargs="+", metavar=WORDS, help=words_help)
    return parser


def _run_load(options: argparse.Namespace) -> int:
    if options.adapter is None:
        if options.base is not None or options.in_place:
            raise UserError(f"--adapter PATH is needed beside --base and --in-place; usage: {LOAD}")
        return _run(options, LOAD, _load)
    from mesh.cli.changes.adapters import add_adapter
    from mesh.cli.changes.engine_status import split_words

    file, (name,) = split_words(options.words, "one name for the adapter is", 1, LOAD)
    asyncio.run(add_adapter(file, name, options.adapter, options.base, options.timeout, in_place=options.in_place))
    return 0


def _run_unload(options: argparse.Namespace) -> int:
    from mesh.cli.arguments import split_topology

    file, words = split_topology(options.words)
    if len(words) != 1:
        return _run(options, UNLOAD, _unload)
    from mesh.cli.changes.adapters import remove_adapter

    asyncio.run(remove_adapter(file, words[0], options.timeout))
    return 0


def _run(options: argparse.Namespace, usage: str, work: Work) -> int:
    from mesh.cli.changes.engine_status import open_mesh, split_words

    file, (engine, service) = split_words(options.words, "an engine and a service are", 2, usage)
    topology = open_mesh(file, engine, service)
    asyncio.run(work(topology, engine, service, options))
    return 0


async def _load(topology: "Topology", engine: str, service: str, options: argparse.Namespace) -> None:
    """Return once the engine serves it."""
    from mesh.cli.changes.engine_status import hear, hear_anything
    from mesh.cli.cluster import visitor
    from mesh.wire.control import LoadService

    async with visitor(topology) as sockets:
        before = await hear_anything(topology, sockets, engine)
        if _serves(before, service):
            print_line(f"{engine} serves {service} already")
            return
        sockets.send(engine, LoadService(service))
        print_line(f"{engine}: loading {service}")
        known = _failure(before, service)
        after = await hear(
            topology,
            sockets,
            engine,
            lambda now: _serves(now, service) or _failure(now, service) != known,
            options.timeout,
        )
    if (failure := _failure(after, service)) not in (None, known):
        raise CommandError(f"{engine} did not load {service}: {failure.reason}")
    if not _serves(after, service):
        log = f"`mesh logs {engine}` tells how far it is"
        raise CommandError(f"{engine} has not loaded {service} after {options.timeout:g} s and goes on: {log}")
    print_line(f"{engine} serves {service} now; a restart gives it the topology's services again")


async def _unload(topology: "Topology", engine: str, service: str, options: argparse.Namespace) -> None:
    """Return once nothing of it is left there."""
    from mesh.cli.changes.engine_status import hear, hear_anything
    from mesh.cli.cluster import collect, visitor
    from mesh.wire.control import UnloadService
    from mesh.wire.status import EngineStatus

    async with visitor(topology) as sockets:
        if _of(await hear_anything(topology, sockets, engine), service) is None:
            print_line(f"{engine} does not serve {service}")
            return
        statuses = (await collect(topology, sockets)).items()
        others = [name for name, status in statuses if isinstance(status, EngineStatus) and _serves(status, service)]
        if not set(others) - {engine} and not options.last:
            raise CommandError(f"{engine} is the only engine that serves {service}: --last takes it away all the same")
        sockets.send(engine, UnloadService(service, options.pause))
        left = _of(await hear(topology, sockets, engine, _Progress(engine, service).is_over, options.timeout), service)
    if left is not None:
        after = "other engines have taken them" if left.is_paused else "they have ended"
        raise CommandError(
            f"{engine} has not let go of {service} after {options.timeout:g} s: {left.num_running} requests "
            f"{'are paused' if left.is_paused else 'run'}; it will when {after}"
        )
    print_line(f"{engine} does not serve {service} any more")


class _Progress:
    """One line for each change of what is left."""

    def __init__(self, engine: str, service: str) -> None:
        self._engine = engine
        self._service = service
        self._num_left: int | None = None

    def is_over(self, status: "EngineStatus") -> bool:
        left = _of(status, self._service)
        if left is None:
            return True
        if left.is_leaving and left.num_running != self._num_left:
            self._num_left = left.num_running
            running = "1 request" if left.num_running == 1 else f"{left.num_running} requests"
            print_line(f"{self._engine}: {running} of {self._service} still here, to move or end")
        return False


def _of(status: "EngineStatus", service: str) -> "ServiceStatus | None":
    return next((one for one in status.services if one.name == service), None)


def _failure(status: "EngineStatus", service: str) -> "FailedLoad | None":
    """Of the last load of it; None: that did not fail."""
    return next((one for one in status.failed_loads if one.service == service), None)


def _serves(status: "EngineStatus", service: str) -> bool:
    found = _of(status, service)
    return found is not None and not found.is_leaving
