"""``mesh migrate``: move a running request to another engine by hand."""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.messages import EngineStatus
    from mesh.topology.schema import GatewaySpec, Topology

USAGE = "mesh migrate [FILE] REQUEST ENGINE [--timeout SECONDS]"
ASK_S = 5.0
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is; ``engine`` is None if it waits at its gateway."""

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
    from mesh.cli.arguments import split_topology
    from mesh.cli.cluster import may_run
    from mesh.cli.engine_status import check_engine
    from mesh.topology.parse import load

    file, words = split_topology(options.words)
    if len(words) != 2:
        raise UserError(f"a request and an engine are needed; usage: {USAGE}")
    topology, engine = load(file), words[1]
    check_engine(topology, engine)
    if not may_run(topology):
        sys.stderr.write(f"mesh {topology.name!r} is not running; start it with `mesh up {file}`\n")
        return EXIT_FAILURE
    place = find(topology, words[0])
    problem = place if isinstance(place, str) else _migrate(topology, place, engine, options.timeout)
    if problem is None and isinstance(place, Place):
        was = "it was there already" if place.engine == engine else f"from {place.engine}"
        sys.stdout.write(f"{place.request} decodes on {engine} ({was})\n")
        return 0
    sys.stderr.write(f"{problem}\n")
    return EXIT_FAILURE


def _migrate(topology: "Topology", place: Place, engine: str, timeout_s: float) -> str | None:
    if place.engine is None:
        return f"{place.request} waits at its gateway: no engine has it"
    if place.engine == engine:
        return None
    return asyncio.run(_ask(topology, place, engine, timeout_s))


async def _ask(topology: "Topology", place: Place, to: str, timeout_s: float) -> str | None:
    """None once the request is there; else why it is not."""
    from mesh.cli.cluster import visitor
    from mesh.cli.engine_status import listen, silent
    from mesh.messages import Migrate

    source = place.engine
    assert source is not None, "only what an engine has can move"
    async with visitor(topology) as sockets:
        before = await listen(sockets, source, lambda _: True, topology.timing.lease_s)
        if before is None:
            return silent(source, topology.timing.lease_s)
        sockets.send(source, Migrate(place.request, to, "by hand"))
        prefix = f"{place.request} to {to}: "

        def is_over(status: "EngineStatus") -> bool:
            return _reason(before, status, prefix) is not None or status.migrations_total > before.migrations_total

        after = await listen(sockets, source, is_over, timeout_s)
    reason = None if after is None else _reason(before, after, prefix)
    if reason is not None:
        return f"{place.request} stays on {source}: {reason}"
    now = find(topology, place.request)
    if isinstance(now, Place) and now.engine == to:
        return None
    return now if isinstance(now, str) else f"{place.request} was not on {to} after {timeout_s:g} s; it is on {source}"


def _reason(before: "EngineStatus", status: "EngineStatus", prefix: str) -> str | None:
    said = status.last_aborted_migration or ""
    is_new = status.migrations_aborted_total > before.migrations_aborted_total
    return said.removeprefix(prefix) if is_new and said.startswith(prefix) else None


def find(topology: "Topology", request: str) -> Place | str:
    """Where a request is, by what the gateways know; or why that cannot be said."""
    import httpx

    problems = []
    with httpx.Client(timeout=ASK_S, trust_env=False) as client:
        for gateway in topology.gateways:
            answer = _story(client, topology, gateway, request)
            if not isinstance(answer, str):
                return _place(answer)
            problems.append(answer)
    return "; ".join(problems)


def _story(client: Any, topology: "Topology", gateway: "GatewaySpec", request: str) -> list[dict[str, Any]] | str:
    import httpx

    from mesh.cli.cluster import url_of

    url = url_of(topology, gateway)
    try:
        response = client.get(f"{url}/mesh/requests/{quote(request, safe='')}")
        if response.is_success:
            return list(response.json()["requests"])
        return str(response.json()["error"]["message"])
    except httpx.HTTPError as error:
        return f"{gateway.id} does not answer at {url} ({str(error) or type(error).__name__})"
    except (ValueError, KeyError, TypeError):
        return f"what answers at {url} is not the gateway {gateway.id}"


def _place(stories: list[dict[str, Any]]) -> Place | str:
    if len(stories) > 1:
        return f"that is {len(stories)} requests; name one: {', '.join(sorted(str(one['id']) for one in stories))}"
    story = stories[0]
    engine: str | None = None
    for event in story["events"]:
        match event["type"]:
            case "accepted" | "moved":
                engine = event["engine"]
            case "interrupted" | "refused":
                engine = None
            case "ended":
                return f"{story['id']} has ended ({event['reason']})"
    return Place(str(story["id"]), engine)
