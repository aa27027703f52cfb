"""``mesh plan``: which services the engines of a running mesh hold, and another placement for all of them at once."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mesh.cli.arguments import add_timeout, print_line, split_topology
from mesh.errors import CommandError, UserError
from mesh.show.output import Showing, add_show
from mesh.suggestions import closest

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.control import EnginePlace
    from mesh.wire.messages import BroadcastMessage, SupervisorMessage
    from mesh.wire.placement import PlacementStatus
    from mesh.wire.status import EngineStatus
    from router.placement.change.changeover import Changeover, Order

USAGE = "mesh plan [FILE] [apply [NEW.toml] | resume | search] [--json] [--plot FILE] [--html FILE]"
TIMEOUT_S = 1800.0
LISTEN_S = 30.0
IMPROVE_S = 20.0
LOOK_S = 0.1


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "plan",
        usage=USAGE,
        help="show or change which engines hold which services",
        description="Show which engines hold which services, and what the placement daemon, if there is one, found "
        "last. apply: bring the engines to what another topology says, or to what the daemon found, without dropping a "
        "request: devices go to the engines that are to have them, services are loaded where they are wanted, then "
        "roles change, then services leave. resume: finish a plan whose command ended before it was done. search: say "
        "what a search for a better placement would change, for what is asked for meanwhile; nothing is changed.",
    )
    parser.add_argument(
        "words", nargs="*", metavar="FILE apply NEW.toml", help="the deployment; what to do; one with the same engines"
    )
    parser.add_argument(
        "--listen",
        type=float,
        default=LISTEN_S,
        metavar="SECONDS",
        help=f"how long a search listens to traffic first (default: {LISTEN_S:g})",
    )
    parser.add_argument(
        "--improve",
        type=float,
        default=IMPROVE_S,
        metavar="SECONDS",
        help=f"how long it improves what it found (default: {IMPROVE_S:g})",
    )
    add_timeout(parser, TIMEOUT_S)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show(parser, "which engine holds what now and in the plan that was found, and what is forecast")
    parser.set_defaults(run=run)


class Action(StrEnum):
    """What is done beside showing."""

    APPLY = "apply"
    RESUME = "resume"
    SEARCH = "search"


def run(options: argparse.Namespace) -> int:
    from mesh.added.stored import load_deployed, load_instead
    from mesh.cli.cluster import require_running
    from router.cli.plan_picture import standing_page
    from router.cli.standing_tables import print_standing, summary

    file, action, new = _split(options.words)
    if action not in {None, Action.SEARCH} and (options.plot or options.html):
        raise UserError(f"--plot and --html: are for showing and for search, not for {action}")
    showing = Showing.of(options, is_for_programs=options.json)
    topology = load_deployed(file)
    wanted = None if new is None else _wanted(topology, load_instead(new, topology))
    require_running(topology, file)
    match action:
        case Action.SEARCH:
            return _search(topology, options, showing)
        case Action.APPLY:
            return _apply(topology, wanted, options.timeout)
        case Action.RESUME:
            asyncio.run(carry_out(topology, None, options.timeout, is_all=False))
            return 0
    heard = asyncio.run(_hear_all(topology))
    if options.json:
        sys.stdout.write(f"{json.dumps(summary(topology, *heard), indent=2)}\n")
    else:
        print_standing(topology, *heard)
    showing.put(lambda: standing_page(topology, *heard))
    return 0


def _split(words: Sequence[str]) -> tuple[Path, Action | None, Path | None]:
    """The deployment, what to do, and the topology to apply. Raise `UserError` if that is not what there is."""
    file, rest = split_topology(words)
    match rest:
        case []:
            return file, None, None
        case [word] if word in list(Action):
            return file, Action(word), None
        case [Action.APPLY, new]:
            return file, Action.APPLY, Path(new)
        case [Action.RESUME | Action.SEARCH as word, other, *_]:
            raise UserError(f"{word} takes nothing after it, but {other!r} is there; usage: {USAGE}")
        case [Action.APPLY, *_]:
            raise UserError(f"apply takes one topology after it; usage: {USAGE}")
    close = closest(rest[0], Action)
    hint = f"did you mean {close!r}?" if close else f"usage: {USAGE}"
    raise UserError(f"no file {rest[0]!r}, and nothing to do is called so; {hint}")


def _apply(topology: "Topology", wanted: "Mapping[str, EnginePlace] | None", timeout_s: float) -> int:
    """``wanted`` None: what the placement daemon found last."""
    is_all = wanted is not None
    if wanted is None:
        wanted = _proposed(topology, asyncio.run(_hear_all(topology)))
    if not wanted:
        print_line("the engines hold the best plan that was found: nothing is to be done")
        return 0
    asyncio.run(carry_out(topology, wanted, timeout_s, is_all=is_all))
    return 0


def _wanted(topology: "Topology", other: "Topology") -> dict[str, "EnginePlace"]:
    """What the other topology wants of each engine; their number is to be chosen. Raise `UserError` if it cannot be."""
    from mesh.wire.control import EnginePlace

    ours, theirs = ({spec.id for spec in one.engines} for one in (topology, other))
    if ours != theirs:
        strange = ", ".join(sorted(ours ^ theirs))
        raise UserError(
            f"{other.path}: its engines are not those of {topology.path}: {strange}; a plan changes no engines"
        )
    known = {service.name for service in topology.services}
    if unknown := sorted({service.name for service in other.services} - known):
        raise UserError(f"{other.path}: services.{unknown[0]}: {topology.path} has no such service; add it and restart")
    return {spec.id: EnginePlace(0, len(theirs), tuple(sorted(spec.services)), spec.role) for spec in other.engines}


def _search(topology: "Topology", options: argparse.Namespace, showing: Showing) -> int:
    from mesh.show.progress import waiting
    from router.cli.plan_picture import search_page
    from router.cli.plan_tables import print_json, print_tables
    from router.placement.dry_run import dry_run, listen

    with waiting(f"listening to {topology.name}", options.listen, has_lines=not options.json):
        heard = asyncio.run(listen(topology, options.listen))
    with waiting("searching, beyond algorithm 1", options.improve, has_lines=not options.json):
        found = dry_run(topology, heard, improve_s=options.improve, num_workers=os.cpu_count() or 1)
    (print_json if options.json else print_tables)(found)
    showing.put(lambda: search_page(topology.name, found))
    return 0


# --- hearing ----------------------------------------------------------------------------------------------------------


class HeardPlacement(NamedTuple):
    """What the mesh says of its placement, without services that were removed. ``daemon``: None if it is silent, or
    there is none.
    """

    engines: Mapping[str, "EngineStatus"]
    daemon: "PlacementStatus | None"


async def _hear_all(topology: "Topology") -> HeardPlacement:
    from mesh.cli.cluster import statuses_of
    from mesh.wire.placement import PlacementStatus

    statuses = _of_deployment(topology, await statuses_of(topology))
    daemon = None if topology.placement is None else statuses.get(topology.placement.id)
    return HeardPlacement(_engines(statuses), daemon if isinstance(daemon, PlacementStatus) else None)


def _of_deployment(topology: "Topology", heard: "Mapping[str, BroadcastMessage]") -> "dict[str, BroadcastMessage]":
    from router.placement.observe.deployed import of_deployment

    services = {service.name for service in topology.services}
    return {name: of_deployment(status, services) for name, status in heard.items()}


def _engines(statuses: Mapping[str, object]) -> dict[str, "EngineStatus"]:
    from mesh.wire.status import EngineStatus

    return {name: status for name, status in statuses.items() if isinstance(status, EngineStatus)}


def _proposed(topology: "Topology", heard: HeardPlacement) -> dict[str, "EnginePlace"]:
    """What the placement daemon found last; empty if the engines hold it. Raise `UserError` if there is nothing."""
    from mesh.wire.control import ProcessState
    from router.cli.standing_tables import proposal

    if topology.placement is None:
        raise UserError(f"apply needs NEW.toml: {topology.path} has no [placement], so nobody proposes a plan")
    if heard.daemon is None:
        raise CommandError(f"{topology.placement.id} says nothing; `mesh status` tells whether it runs")
    decision = heard.daemon.decision
    if decision is None or not decision.places:
        due = f"its next decision is in {heard.daemon.next_decision_s:.0f} s"
        raise CommandError(f"{topology.placement.id} has found no plan: {decision.reason if decision else due}")
    states = {engine: status.state for engine, status in heard.engines.items()}
    resting = _sharing(topology) - states.keys()
    needed = decision.places.keys() - resting
    if gone := sorted(engine for engine in needed if states.get(engine) is not ProcessState.READY):
        raise CommandError(f"{gone[0]} is not ready, and the plan that was found needs it; wait for the next decision")
    print_line(f"interval {decision.interval}: {decision.verdict}: {decision.reason}")
    return dict(proposal(decision, heard.engines))


# --- carrying out -----------------------------------------------------------------------------------------------------


async def carry_out(
    topology: "Topology", wanted: Mapping[str, "EnginePlace"] | None, timeout_s: float, *, is_all: bool
) -> None:
    """``wanted`` None: the plan that the engines know of. ``is_all``: what it has no place for is to leave."""
    import msgspec

    from mesh.cli.cluster import collect, visitor
    from router.cli.standing_tables import newest_plan
    from router.placement.change.changeover import Changeover, Patience, announced

    timing, clock = topology.timing, asyncio.get_running_loop().time
    async with visitor(topology) as sockets:
        heard = await collect(topology, sockets)
        statuses = _engines(heard)
        number = newest_plan(statuses)
        if wanted is None:
            places = announced(_engines(_of_deployment(topology, heard)))
            if not places:
                raise CommandError("there is no plan that all engines know of: nothing to resume")
        else:
            number += 1
            if is_all:
                resting = _sharing(topology) - statuses.keys()
                wanted = {engine: place for engine, place in wanted.items() if engine not in resting}
            new = {"number": number, "num_engines": len(wanted)}
            places = {engine: msgspec.structs.replace(place, **new) for engine, place in wanted.items()}
        patience = Patience(timing.reply_s, timing.lease_s + timing.reply_s, timeout_s)
        drops = {service.name for status in statuses.values() for service in status.services} if is_all else ()
        alive = Alive(topology, heard, clock())
        regroup = alive.devices.change(statuses, places, clock(), timing.reply_s)
        change = Changeover(number, places, patience, clock(), drops, regroup=regroup)
        print_line(f"plan {number}: {change.doing}")
        await _until_over(sockets, change, alive)
    if change.reason:
        raise CommandError(f"plan {number} was given up: {change.reason}; what was loaded stays")
    print_line(f"plan {number} is carried out")


def _sharing(topology: "Topology") -> set[str]:
    """Return the engines that share devices with others: some of them rest."""
    return {name for spec in topology.engines if spec.spans for name in (spec.id, *spec.spans)}


class Alive:
    """The last statuses of engines that were heard within their lease, and what became of devices that are shared."""

    def __init__(self, topology: "Topology", heard: Mapping[str, object], now: float) -> None:
        from router.placement.observe.devices import Devices

        self.devices = Devices(topology)
        self._heard: dict[str, tuple[EngineStatus, float]] = {}
        self._lease_s = topology.timing.lease_s
        for process, status in heard.items():
            self.hear(process, status, now)

    def hear(self, process: str, status: object, now: float) -> None:
        from mesh.wire.status import EngineStatus, SupervisorStatus

        match status:
            case EngineStatus():
                self._heard[process] = status, now
            case SupervisorStatus():
                self.devices.hear(status)

    def statuses(self, now: float) -> dict[str, "EngineStatus"]:
        return {engine: status for engine, (status, at) in self._heard.items() if now <= at + self._lease_s}


async def _until_over(sockets: "Sockets[SupervisorMessage]", change: "Changeover", alive: Alive) -> None:
    clock, said = asyncio.get_running_loop().time, set[str]()
    hearing = asyncio.create_task(_hear(sockets, alive))
    try:
        while not change.is_over:
            doing = change.doing
            orders = change.orders(alive.statuses(clock()), clock(), alive.devices.children)
            lines = [] if change.doing == doing or change.is_over else [f"plan {change.number}: {change.doing}"]
            for process, order in orders:
                sockets.send(process, order)
                lines += _line(process, order)
            for line in lines:
                if line not in said:  # orders are repeated until they are seen to be heard
                    print_line(line)
            said.update(lines)
            await asyncio.sleep(LOOK_S)
    finally:
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing


async def _hear(sockets: "Sockets[SupervisorMessage]", alive: Alive) -> None:
    async for sender, status in sockets.broadcasts():
        alive.hear(sender.process, status, asyncio.get_running_loop().time())


def _line(engine: str, order: "Order") -> Iterator[str]:
    from mesh.wire.control import LoadService, SetRole, SetRunning, StageService, UnloadService

    match order:
        case LoadService(service):
            yield f"{engine}: loading {service}"
        case StageService(service):
            yield f"{engine}: reading {service} into its host's memory"
        case SetRunning(other):
            yield f"{other}: is to take its devices"
        case SetRole(role):
            yield f"{engine}: is to be a {role} engine"
        case UnloadService(service, pauses):
            yield f"{engine}: {'pausing' if pauses else 'unloading'} {service}"
