"""``mesh front``: serve from servers that run already, without a topology of one's own."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from router.cli.front_draft import FoundServer

DEADLINE_S = 10.0


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "front",
        help="be the gateway of servers that run already, until Ctrl-C",
        description="Ask servers with OpenAI's API (vLLM, SGLang, llama.cpp and others) what they serve, and serve it "
        "from one gateway, until Ctrl-C. It is a mesh as `mesh up` starts it, and commands that name no topology mean "
        "it while it runs.",
    )
    parser.add_argument("urls", nargs="+", metavar="URL", help="a server, such as http://gpu-1:8000")
    parser.add_argument("--ttft", type=float, metavar="MS", help="time to first token to promise (default: 5000)")
    parser.add_argument("--tpot", type=float, metavar="MS", help="time per output token to promise (default: 250)")
    parser.add_argument("--policy", default="elastic", metavar="NAME", help="the dispatch policy (default: elastic)")
    parser.add_argument(
        "--address", default="127.0.0.1", metavar="IP", help="address of the gateway (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port of the gateway (default: 8000)")
    parser.add_argument("--api-key-env", metavar="NAME", help="variable with the key that the servers want")
    parser.add_argument("--open", action="store_true", help="everybody who reaches the gateway may use it")
    parser.add_argument("--name", default="front", metavar="NAME", help="the name of the mesh (default: front)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the topology there, and do not start it")
    parser.add_argument("--force", action="store_true", help="with --save: overwrite the file if it is there")
    parser.add_argument("--detach", action="store_true", help="return when it is ready; it goes on until `mesh down`")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli import up
    from mesh.cli.first_steps.serve import place_served
    from router.cli.front_draft import FrontDraft

    found = asyncio.run(_ask_all(options.urls, _key(options.api_key_env)))
    if not found:
        sys.stderr.write("none of the servers can be used, so there is nothing to serve\n")
        return EXIT_FAILURE
    draft = FrontDraft(
        found,
        name=options.name,
        ttft_ms=options.ttft,
        tpot_ms=options.tpot,
        policy=options.policy,
        address=options.address,
        port=options.port,
        api_key_env=options.api_key_env,
        is_open=options.open,
    )
    if options.save is not None:
        return _save(options.save, draft.text(), overwrite=options.force)
    file = place_served(draft.text())
    return up.run(
        argparse.Namespace(file=file, detach=options.detach, replace=False, host=None, ready_file=None, ready_fd=None)
    )


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    from router.servers.http import as_key

    return as_key(os.environ.get(variable), f"--api-key-env {variable}")


def _save(file: Path, text: str, *, overwrite: bool) -> int:
    """Write a topology that is right, where none is."""
    from mesh.topology.further import check_further
    from mesh.topology.parse import load

    if file.exists() and not overwrite:
        raise UserError(f"{file}: exists already; name another file, or overwrite it with --force")
    check_further(load(file, text))
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None
    sys.stdout.write(f"{file}: written\n\n  mesh check {file}\n  mesh up {file}\n")
    return 0


async def _ask_all(urls: list[str], key: str | None) -> "list[FoundServer]":
    """Ask all at once, and say what each of them is, or why it is left out."""
    import aiohttp

    from mesh.topology.values import server_url
    from router.cli.front_draft import FoundServer
    from router.servers.identify import ServerError, identify

    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    try:
        places = list(dict.fromkeys(server_url(url if "://" in url else f"http://{url}") for url in urls))
    except ValueError as error:
        raise UserError(str(error)) from None
    async with aiohttp.ClientSession(headers=headers) as session:
        asked = [identify(session, place, None, DEADLINE_S) for place in places]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    found = []
    for place, answer in zip(places, answers, strict=True):
        if isinstance(answer, ServerError):
            sys.stderr.write(f"left out: {answer}\n")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(FoundServer(place, answer))
            print_found(found[-1])
    return found


def print_found(server: "FoundServer") -> None:
    """Write one line about a server."""
    contexts = {model.id: model.max_context for model in server.facts.models}
    models = ", ".join(name if size is None else f"{name} ({size} tokens)" for name, size in contexts.items())
    sys.stdout.write(f"{server.url}: {server.facts.title}, serves {models}\n")
