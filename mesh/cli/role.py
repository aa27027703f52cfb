"""``mesh role``: use a running engine for something else."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.messages import Role
    from mesh.topology.schema import Topology

USAGE = "mesh role [FILE] ENGINE prefill|decode|multiplex"


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("role", usage=USAGE, help="give a running engine another role")
    parser.add_argument("words", nargs="+", metavar="FILE ENGINE ROLE", help="the deployment; which engine; its role")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.arguments import split_topology
    from mesh.cli.cluster import may_run
    from mesh.cli.engine_status import check_engine
    from mesh.topology.parse import load

    file, words = split_topology(options.words)
    if len(words) != 2:
        raise UserError(f"an engine and a role are needed; usage: {USAGE}")
    engine, role = words[0], _role(words[1])
    topology = load(file)
    check_engine(topology, engine)
    if not may_run(topology):
        sys.stderr.write(f"mesh {topology.name!r} is not running; start it with `mesh up {file}`\n")
        return EXIT_FAILURE
    problem = asyncio.run(_change(topology, engine, role))
    if problem is None:
        sys.stdout.write(f"{engine} is a {role} engine now; a restart gives it the topology's role again\n")
        return 0
    sys.stderr.write(f"{problem}\n")
    return EXIT_FAILURE


def _role(word: str) -> "Role":
    from mesh.messages import Role

    if word not in list(Role):
        raise UserError(f"no role {word!r}; there are {', '.join(Role)}")
    return Role(word)


async def _change(topology: "Topology", engine: str, role: "Role") -> str | None:
    """None once the engine says that it has the role, else why not."""
    from mesh.cli.cluster import visitor
    from mesh.cli.engine_status import listen, silent
    from mesh.messages import SetRole

    timing = topology.timing
    async with visitor(topology) as sockets:
        before = await listen(sockets, engine, lambda _: True, timing.lease_s)
        if before is None:
            return silent(engine, timing.lease_s)
        if before.role is role:
            return None
        sockets.send(engine, SetRole(role, before.num_role_changes))
        timeout_s = timing.lease_s + timing.reply_s
        after = await listen(
            sockets, engine, lambda status: status.num_role_changes > before.num_role_changes, timeout_s
        )
    if after is None:
        return silent(engine, timeout_s)
    if after.role is role:
        return None
    if after.num_role_changes > before.num_role_changes:
        return f"{engine} was given another role by somebody else at the same time: {after.role}"
    return f"{engine} did not take the role within {timeout_s:g} s; it is {after.role}"
