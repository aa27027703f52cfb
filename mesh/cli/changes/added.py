"""``mesh services``: which services a running mesh serves; adds others to it while it runs, and removes those again."""

import argparse
import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import add_timeout, add_topology, choose_host, print_line, split_topology
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology
    from mesh.wire.messages import BroadcastMessage

ADD = "mesh services add [FILE] SERVICES.toml [--replace]"
REMOVE = "mesh services remove [FILE] NAME ..."
TIMEOUT_S = 600.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("services", help="list the services of a running mesh, add others, remove those")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="which services there are, and which engines serve them")
    add_topology(listing, running=True)
    listing.set_defaults(run=_list)
    add = actions.add_parser("add", usage=f"{ADD} [--timeout SECONDS]", help="serve more services")
    text = "the deployment; a file with [services.NAME] tables as in a deployment's, and engines = [...] in them"
    add.add_argument("words", nargs="+", metavar="FILE", help=text)
    add.add_argument(
        "--replace", action="store_true", help="replace engines whose memory is laid out for others, one at a time"
    )
    add.set_defaults(run=_add)
    remove = actions.add_parser("remove", usage=f"{REMOVE} [--timeout SECONDS]", help="serve added services no more")
    remove.add_argument("words", nargs="+", metavar="FILE NAME", help="the deployment; which of the added services")
    remove.set_defaults(run=_remove)
    for action in (add, remove):
        action.add_argument("--host", metavar="NAME", help="which host this machine is, if there are several")
        add_timeout(action, TIMEOUT_S)


def _list(options: argparse.Namespace) -> int:
    from mesh.added.stored import load_deployed
    from mesh.cli.cluster import require_running, statuses_of

    topology = load_deployed(options.file)
    require_running(topology, options.file)
    statuses = asyncio.run(statuses_of(topology))
    for service in topology.services:
        engines = serving(statuses, service.name)
        where = f"served by {', '.join(engines)}" if engines else "served by no engine"
        print_line(f"{service.name}: {where}{', added while the mesh runs' if service.is_added else ''}")
    return 0


def _add(options: argparse.Namespace) -> int:
    from mesh.added.stored import changing, stored_tables
    from mesh.added.tables import read_tables
    from mesh.cli.changes.adding import Here, add_tables
    from mesh.supervisor.hosting import prepare_models
    from mesh.topology.further import check_further
    from mesh.topology.parse import load, read_text

    file, path = _two_files(options.words)
    topology = load(file)
    host = _host_to_change(topology, file, options.host)
    with changing(topology):
        before, new = stored_tables(topology), read_tables(path, read_text(path))
        for one in new:
            if one.name in [other.name for other in before]:
                remedy = f"`mesh services remove {one.name}` first"
                raise UserError(f"{path}: services.{one.name}: was added already; {remedy}")
        wanted = load(file, added=(*before, *new))
        known = check_further(load(file, added=before))
        for remark in check_further(wanted):
            if remark not in known:
                print_line(f"note: {remark}")
        if code := prepare_models(wanted, host):
            return code
        _carry_out(add_tables(Here(topology, host, options.timeout, options.replace), wanted, before, new))
        return 0


def _remove(options: argparse.Namespace) -> int:
    from mesh.added.stored import changing, stored_tables
    from mesh.cli.changes.adding import Here, remove_tables
    from mesh.suggestions import suggestion
    from mesh.topology.parse import load
    from mesh.topology.report import TopologyError

    file, words = split_topology(options.words)
    names = list(dict.fromkeys(words))
    if not names:
        raise UserError(f"which service? usage: {REMOVE}")
    topology = load(file)
    host = _host_to_change(topology, file, options.host)
    with changing(topology):
        before = stored_tables(topology)
        for name in names:
            if any(name == service.name for service in topology.offered):
                raise UserError(f"{name} is a service of {file}, and stays; take it out there, and `mesh up {file}`")
            if all(name != one.name for one in before):
                raise UserError(f"no service {name!r} was added; {suggestion(name, [one.name for one in before])}")
        try:
            load(file, added=[one for one in before if one.name not in names])
        except TopologyError as error:
            raise UserError(f"{', '.join(names)}: stays, since another service needs it: {error}") from None
        _carry_out(remove_tables(Here(topology, host, options.timeout), before, names))
        return 0


def _carry_out(change: Coroutine[Any, Any, None]) -> None:
    """Let SIGTERM undo what was done, as Ctrl-C does."""

    async def until_told() -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio.run makes one"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await change

    try:
        asyncio.run(until_told())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _two_files(words: Sequence[str]) -> tuple[Path, Path]:
    """The deployment, and what is to be added to it."""
    if len(words) > 2:
        raise UserError(f"one file of services is needed; usage: {ADD}")
    file, _ = split_topology(words[:-1])
    return file, Path(words[-1])


def _host_to_change(topology: "Topology", file: Path, wanted: str | None) -> str:
    from mesh.cli.cluster import require_running

    if topology.cluster is not None:
        raise UserError(f"{file}: its hosts come and go with a cluster; write the services into it")
    require_running(topology, file)
    return choose_host(topology, wanted)


def serving(statuses: "Mapping[str, BroadcastMessage]", service: str) -> list[str]:
    """Return the engines that serve it, as they say."""
    from mesh.wire.status import EngineStatus

    engines = {name: status for name, status in statuses.items() if isinstance(status, EngineStatus)}
    return sorted(
        name
        for name, status in engines.items()
        if any(one.name == service and not one.is_leaving for one in status.services)
    )
