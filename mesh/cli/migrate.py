"""``mesh migrate``: move a running request to another engine by hand."""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mesh.errors import CommandError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology
    from mesh.wire.status import EngineStatus

USAGE = "mesh migrate [FILE] REQUEST ENGINE [--timeout SECONDS]"
ASK_S = 5.0
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a request. ``engine`` is None if it waits at its gateway."""

    request: str
    engine: str | None


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("migrate", usage=USAGE, help="move a running request to another engine")
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE REQUEST ENGINE",
        help="the deployment; the id of an answer or its x-request-id; where to",
    )
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help=f"(default: {TIMEOUT_S:g})")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.engine_status import open_mesh, split_words

    file, (request, engine) = split_words(options.words, "a request and an engine are", 2, USAGE)
    topology = open_mesh(file, engine)
    place = find(topology, request)
    if place.engine is None:
        raise CommandError(f"{place.request} waits at its gateway: no engine has it")
    if place.engine != engine:
        asyncio.run(_move(topology, place.request, place.engine, engine, options.timeout))
        _check(find(topology, place.request), engine, options.timeout)
    was = "it was there already" if place.engine == engine else f"from {place.engine}"
    sys.stdout.write(f"{place.request} decodes on {engine} ({was})\n")
    return 0


async def _move(topology: "Topology", request: str, source: str, to: str, timeout_s: float) -> None:
    """Return once its engine says that it is gone, or is silent about it for too long."""
    from mesh.cli.cluster import visitor
    from mesh.cli.engine_status import hear_anything, listen
    from mesh.wire.control import Migrate

    async with visitor(topology) as sockets:
        before = await hear_anything(topology, sockets, source)
        sockets.send(source, Migrate(request, to, "by hand"))
        prefix = f"{request} to {to}: "

        def is_over(status: "EngineStatus") -> bool:
            return _reason(before, status, prefix) is not None or status.migrations_total > before.migrations_total

        after = await listen(sockets, source, is_over, timeout_s)
    reason = None if after is None else _reason(before, after, prefix)
    if reason is not None:
        raise CommandError(f"{request} stays on {source}: {reason}")


def _check(now: Place, to: str, timeout_s: float) -> None:
    if now.engine != to:
        where = f"is on {now.engine}" if now.engine else "waits at its gateway"
        raise CommandError(f"{now.request} was not on {to} after {timeout_s:g} s; it {where}")


def _reason(before: "EngineStatus", status: "EngineStatus", prefix: str) -> str | None:
    said = status.last_aborted_migration or ""
    is_new = status.migrations_aborted_total > before.migrations_aborted_total
    return said.removeprefix(prefix) if is_new and said.startswith(prefix) else None


def find(topology: "Topology", request: str) -> Place:
    """Return where a request is, by what the gateways know."""
    import httpx

    from mesh.cli.api_key import bearer
    from mesh.cli.cluster import admin_urls

    problems = []
    with httpx.Client(timeout=ASK_S, trust_env=False, headers=bearer()) as client:
        for gateway, url in admin_urls(topology).items():
            answer = _story(client, gateway, url, request)
            if not isinstance(answer, str):
                return _place(answer)
            problems.append(answer)
    raise CommandError("; ".join(problems))


def _story(client: Any, gateway: str, url: str | None, request: str) -> list[dict[str, Any]] | str:
    import httpx

    if url is None:
        return f"{gateway} does not answer: it does not run, or is silent"
    try:
        response = client.get(f"{url}/mesh/requests/{quote(request, safe='')}")
        if response.is_success:
            return list(response.json()["requests"])
        return str(response.json()["error"]["message"])
    except httpx.HTTPError as error:
        return f"{gateway} does not answer at {url} ({str(error) or type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return f"what answers at {url} is not the gateway {gateway}"


def _place(stories: list[dict[str, Any]]) -> Place:
    if len(stories) > 1:
        ids = ", ".join(sorted(str(one["id"]) for one in stories))
        raise CommandError(f"that is {len(stories)} requests; name one: {ids}")
    story = stories[0]
    engine: str | None = None
    for event in story["events"]:
        match event["type"]:
            case "accepted" | "moved":
                engine = event["engine"]
            case "interrupted" | "refused":
                engine = None
            case "ended":
                raise CommandError(f"{story['id']} has ended ({event['reason']})")
    return Place(str(story["id"]), engine)
