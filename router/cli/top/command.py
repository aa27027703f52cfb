"""``mesh top``: what happens in a mesh, in the terminal."""

import argparse
import os
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "top",
        help="watch engines, requests and promises in the terminal",
        description="Watch engines, requests, promises and moves as they change. Press ? for the keys.",
    )
    add_topology(parser, running=True)
    once = "print how everything is and exit, as is also done where there is no terminal"
    parser.add_argument("--once", action="store_true", help=once)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio

    from mesh.cli.cluster import require_running
    from mesh.topology.parse import load

    topology = load(options.file)
    require_running(topology, options.file)
    return asyncio.run(_top(topology, options))


async def _top(topology: "Topology", options: argparse.Namespace) -> int:
    from mesh.cli.api_key import bearer
    from mesh.cluster.reports import not_running
    from router.cli.top.app import App, Feeds, is_simple, once
    from router.cli.top.known.picture import MeshPicture
    from router.cli.top.terminal import Terminal

    headers = bearer()
    finding = _Finding(topology)
    urls = await finding.urls()
    if not finding.was_heard:
        raise not_running(topology, options.file)
    feeds = Feeds(
        MeshPicture(topology.name, [gateway.id for gateway in topology.gateways]), urls, finding.urls, headers
    )
    if options.once or is_simple(os.environ):
        return await once(feeds)
    with Terminal(0, 1) as terminal:
        return await App(feeds, terminal).run()


class _Finding:
    """Asks the mesh where its gateways are. ``was_heard``: whether any process spoke."""

    def __init__(self, topology: "Topology") -> None:
        self._topology = topology
        self.was_heard = False

    async def urls(self) -> dict[str, str | None]:
        from mesh.cli.cluster import admin_urls_in, statuses_of

        statuses = await statuses_of(self._topology, remarks=not self.was_heard)
        self.was_heard = self.was_heard or bool(statuses)
        return admin_urls_in(self._topology, statuses)
