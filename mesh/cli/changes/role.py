"""``mesh role``: use a running engine for something else."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from mesh.errors import CommandError, UserError
from mesh.suggestions import suggestion

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology
    from mesh.wire.control import Role

USAGE = "mesh role [FILE] ENGINE prefill|decode|multiplex"


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("role", usage=USAGE, help="give a running engine another role")
    parser.add_argument("words", nargs="+", metavar="FILE ENGINE ROLE", help="the deployment; which engine; its role")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.changes.engine_status import open_mesh, split_words

    file, (engine, word) = split_words(options.words, "an engine and a role are", 2, USAGE)
    role = _role(word)
    asyncio.run(_change(open_mesh(file, engine), engine, role))
    sys.stdout.write(f"{engine} is a {role} engine now; a restart gives it the topology's role again\n")
    return 0


def _role(word: str) -> "Role":
    from mesh.wire.control import Role

    if word not in list(Role):
        raise UserError(f"no role {word!r}; {suggestion(word, Role)}")
    return Role(word)


async def _change(topology: "Topology", engine: str, role: "Role") -> None:
    """Return once the engine says that it has the role."""
    from mesh.cli.changes.engine_status import hear, hear_anything
    from mesh.cli.cluster import visitor
    from mesh.wire.control import SetRole

    async with visitor(topology) as sockets:
        before = await hear_anything(topology, sockets, engine)
        if before.role is role:
            return
        if before.keeps_role:
            raise CommandError(
                f"{engine} runs static batches, which are prefilled and decoded in one place; it keeps its role"
            )
        sockets.send(engine, SetRole(role, before.num_role_changes))
        timeout_s = topology.timing.lease_s + topology.timing.reply_s
        after = await hear(
            topology, sockets, engine, lambda status: status.num_role_changes > before.num_role_changes, timeout_s
        )
    if after.role is role:
        return
    if after.num_role_changes > before.num_role_changes:
        raise CommandError(f"{engine} was given another role by somebody else at the same time: {after.role}")
    raise CommandError(f"{engine} did not take the role within {timeout_s:g} s; it is {after.role}")
