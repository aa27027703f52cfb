"""``mesh policy``: which policy each gateway runs, and another one for all of them while they run."""

import argparse
import asyncio
import sys
import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import PolicySpec, Topology
    from mesh.wire.control import PolicyChoice
    from router.cli.polling import Poll

USAGE = "mesh policy [FILE] [NAME [KEY=VALUE ...]] [--list] [--json]"


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "policy",
        usage=USAGE,
        help="show or switch the dispatch policy of a running mesh",
        description="Show which dispatch policy the gateways of a running mesh have, or switch all of them to another.",
    )
    parser.add_argument("words", nargs="*", metavar="FILE NAME KEY=VALUE", help="the deployment; the policy to run")
    parser.add_argument("--list", action="store_true", help="what policies and parameters there are")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.arguments import split_topology
    from mesh.cli.cluster import require_running
    from mesh.topology.parse import load
    from router.cli.policy_tables import print_catalogue

    if options.list:
        print_catalogue(as_json=options.json)
        return 0
    file, words = split_topology(options.words)
    wanted = _wanted(words) if words else None
    topology = load(file)
    require_running(topology, file)
    poll = asyncio.run(_show(topology) if wanted is None else _switch(topology, wanted))
    return _report(topology, poll, wanted, as_json=options.json)


def _wanted(words: Sequence[str]) -> "PolicySpec":
    """Raise `UserError` naming what exists if there is no such policy or parameter."""
    from mesh.topology.schema import PolicySpec
    from router.policies.registry import with_defaults

    name, *settings = words
    parameters = dict(map(_setting, settings))
    try:
        return with_defaults(PolicySpec(name, parameters))
    except UserError as error:
        raise UserError(f"{str(error).removeprefix('[policy] ')}; `mesh policy --list` describes them") from None


def _setting(word: str) -> tuple[str, Any]:
    """``key=value`` with a value as in a topology; text needs no quotes."""
    key, equals, text = word.partition("=")
    if not key or not equals:
        raise UserError(f"{word!r}: a parameter is given as KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text


async def _show(topology: "Topology") -> "Poll":
    from mesh.cli.cluster import visitor
    from router.cli.polling import Poll

    async with visitor(topology) as sockets:
        poll = Poll(topology)
        await poll.listen(sockets, lambda: poll.is_complete, topology.timing.lease_s)
        return poll


async def _switch(topology: "Topology", wanted: "PolicySpec") -> "Poll":
    """Learn the latest choice, make one that is later, and stay until every gateway runs it or the time is up."""
    from mesh.cli.cluster import visitor
    from mesh.wire.control import PolicyChoice, SetPolicy
    from router.cli.polling import Poll

    timing = topology.timing
    async with visitor(topology) as sockets:
        poll = Poll(topology)
        await poll.listen(sockets, lambda: poll.is_complete, timing.lease_s)
        poll.choice = PolicyChoice(wanted.name, dict(wanted.parameters), poll.latest_version + 1)
        for gateway in topology.gateways:
            sockets.send(poll.names.get(gateway.id, gateway.id), SetPolicy(poll.choice))
        await poll.listen(sockets, lambda: poll.is_agreed, timing.lease_s + timing.reply_s)
        return poll


def _report(topology: "Topology", poll: "Poll", wanted: "PolicySpec | None", *, as_json: bool) -> int:
    from router.cli.policy_tables import in_words, print_json, print_policies

    if as_json:
        print_json(topology, poll)
    elif wanted is None or poll.heard:
        print_policies(topology, poll)
    problems = list(_problems(topology, poll))
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    if wanted is not None and not problems and not as_json:
        sys.stdout.write(
            f"{'the gateway runs' if len(poll.heard) == 1 else 'all gateways run'} {in_words(poll.choice)}\n"
        )
    return EXIT_FAILURE if problems else 0


def _problems(topology: "Topology", poll: "Poll") -> "Sequence[str]":
    from router.cli.policy_tables import in_words

    problems = []
    for gateway in topology.gateways:
        status = poll.heard.get(gateway.id)
        if status is None:
            why = poll.why_silent(gateway.id)
            later = "; it takes the policy of the others when it is back" if len(topology.gateways) > 1 else ""
            problems.append(f"{gateway.id} did not answer ({why}){later}")
        elif poll.choice and status.policy != poll.choice:
            problems.append(f"{gateway.id} {_runs_other(status.policy, poll.choice)}{in_words(status.policy)}")
    return problems


def _runs_other(runs: "PolicyChoice | None", choice: "PolicyChoice") -> str:
    if runs is not None and runs.version >= choice.version:
        return "was switched by somebody else at the same time, to "
    return "did not take it in time; its log says why if it refused. It runs "
