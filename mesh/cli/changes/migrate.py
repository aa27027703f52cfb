"""``mesh migrate``: move a running request to another engine by hand."""

import argparse
import asyncio
import sys
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_timeout
from mesh.errors import CommandError, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.sockets.sockets import Sockets
    from mesh.topology.schema import Topology
    from mesh.wire.control import RequestPlace, RequestPlaces
    from mesh.wire.messages import SupervisorMessage
    from mesh.wire.status import EngineStatus

USAGE = "mesh migrate [FILE] REQUEST ENGINE [--timeout SECONDS]"
ASK_S, TRIES = 1.0, 5
TIMEOUT_S = 30.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("migrate", usage=USAGE, help="move a running request to another engine")
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE REQUEST ENGINE",
        help="the deployment; the id of an answer or its x-request-id; where to",
    )
    add_timeout(parser, TIMEOUT_S)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.changes.engine_status import open_mesh, split_words
    from mesh.wire.bounds import MAX_NAME

    file, (request, engine) = split_words(options.words, "a request and an engine are", 2, USAGE)
    if len(request) > MAX_NAME:
        raise UserError(f"no request has a name of {len(request)} characters")
    topology = open_mesh(file, engine)
    before = asyncio.run(_migrate(topology, request, engine, options.timeout))
    was = "it was there already" if before.engine == engine else f"from {before.engine}"
    sys.stdout.write(f"{before.request} decodes on {engine} ({was})\n")
    return 0


async def _migrate(topology: "Topology", asked: str, to: str, timeout_s: float) -> "RequestPlace":
    """Return where the request was before, once it is where it is to be."""
    from mesh.cli.cluster import visitor

    async with visitor(topology) as sockets:
        sockets.expect_answers()
        before = await find(topology, sockets, asked)
        if before.engine is None:
            raise CommandError(f"{before.request} waits at its gateway: no engine has it")
        if before.engine != to:
            await _move(topology, sockets, before.request, before.engine, to, timeout_s)
            _check(await find(topology, sockets, before.request), to, timeout_s)
    return before


async def _move(
    topology: "Topology", sockets: "Sockets[SupervisorMessage]", request: str, source: str, to: str, timeout_s: float
) -> None:
    """Return once its engine says that it is gone, or is silent about it for too long."""
    from mesh.cli.changes.engine_status import hear_anything, listen
    from mesh.wire.control import Migrate

    before = await hear_anything(topology, sockets, source)
    sockets.send(source, Migrate(request, to, "by hand"))
    prefix = f"{request} to {to}: "

    def is_over(status: "EngineStatus") -> bool:
        return _reason(before, status, prefix) is not None or status.migrations_total > before.migrations_total

    after = await listen(sockets, source, is_over, timeout_s)
    reason = None if after is None else _reason(before, after, prefix)
    if reason is not None:
        raise CommandError(f"{request} stays on {source}: {reason}")


def _check(now: "RequestPlace", to: str, timeout_s: float) -> None:
    if now.engine != to:
        where = f"is on {now.engine}" if now.engine else "waits at its gateway"
        raise CommandError(f"{now.request} was not on {to} after {timeout_s:g} s; it {where}")


def _reason(before: "EngineStatus", status: "EngineStatus", prefix: str) -> str | None:
    said = status.last_aborted_migration or ""
    is_new = status.migrations_aborted_total > before.migrations_aborted_total
    return said.removeprefix(prefix) if is_new and said.startswith(prefix) else None


async def find(topology: "Topology", sockets: "Sockets[SupervisorMessage]", asked: str) -> "RequestPlace":
    """Return where a request is, by what the gateways know."""
    from mesh.cli.cluster import hear_all
    from mesh.wire.status import GatewayStatus

    statuses = await hear_all(topology, sockets)
    gateways = {name for name, status in statuses.items() if isinstance(status, GatewayStatus)}
    if not gateways:
        raise CommandError("no gateway runs, or all are silent")
    answers = await _ask(sockets, gateways, asked)
    places = [place for answer in answers.values() for place in answer.places]
    if not places:
        silent = [f"{name} does not answer" for name in sorted(gateways - answers.keys())]
        unknown = [f"{name} knows no request {asked!r}" for name in sorted(answers)]
        raise CommandError("; ".join([*unknown, *silent]))
    return the_one(places)


async def _ask(sockets: "Sockets[SupervisorMessage]", gateways: Set[str], asked: str) -> dict[str, "RequestPlaces"]:
    """The answers of the gateways, by name, until one knows the request or all have answered."""
    from mesh.wire.control import Locate, RequestPlaces

    answers: dict[str, RequestPlaces] = {}
    for _ in range(TRIES):
        for gateway in gateways - answers.keys():
            sockets.send(gateway, Locate(asked))
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_S):
                async for sender, found in sockets.answers():
                    if isinstance(found, RequestPlaces) and found.asked == asked:
                        answers[sender.process] = found
                        if found.places or answers.keys() >= gateways:
                            return answers
    return answers


def the_one(places: "Sequence[RequestPlace]") -> "RequestPlace":
    """Return the only place there is, of a request that has not ended. Raise `CommandError`."""
    if len(places) > 1:
        ids = ", ".join(sorted(place.request for place in places))
        raise CommandError(f"that is {len(places)} requests; name one: {ids}")
    if places[0].end:
        raise CommandError(f"{places[0].request} has ended ({places[0].end})")
    return places[0]
