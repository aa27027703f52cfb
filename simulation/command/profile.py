"""``mesh profile``: what engines cost, ours and the servers of others, kept for simulations."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engines.profiling import command as engines_command
from mesh.errors import UserError

if TYPE_CHECKING:
    from engines.costs.profiles import ProfileFile

DEFAULT_MINUTES: Final = 5.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``profile`` to the commands of ``mesh``."""
    parser = engines_command.register(subparsers)
    parser.usage = (
        "mesh profile [TOPOLOGY] [--repeats N | --live] [--plot FILE] [--html FILE]\n"
        "       mesh profile --url URL [--minutes M | --passive] [--model NAME] [--save FILE] [--plot FILE]\n"
        "       mesh profile --from FILE [FILE ...] [--save FILE] [--plot FILE]"
    )
    group = parser.add_argument_group("a server that is not ours (vLLM, SGLang, llama.cpp, any with the OpenAI API)")
    group.add_argument("--url", metavar="URL", help="drive this server with a load that tells its costs apart")
    group.add_argument(
        "--minutes",
        type=_minutes,
        default=DEFAULT_MINUTES,
        metavar="M",
        help="at most (default: 5); less when all is known",
    )
    group.add_argument("--model", metavar="NAME", help="the model (default: the only one that the server has)")
    group.add_argument("--api-key-env", metavar="NAME", help="the environment variable that holds the server's key")
    group.add_argument("--chunk-tokens", type=_count, metavar="N", help="of an iteration, where you know it")
    group.add_argument("--max-running", type=_count, metavar="N", help="requests at a time, where you know it")
    group.add_argument("--kv-tokens", type=_count, metavar="N", help="that KV memory holds, where you know it")
    group.add_argument(
        "--most-together", type=_count, default=256, metavar="N", help="requests that are sent at a time (default: 256)"
    )
    group.add_argument("--save", type=Path, metavar="FILE", help="write the profile there, too; ends in .toml")
    parser.set_defaults(run=run)


def _minutes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a number of minutes above 0")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.save is not None and arguments.save.suffix != ".toml":
        raise UserError(f"--save: {arguments.save}: profiles are TOML; let its name end in .toml")
    if arguments.url is not None:
        return _profile_url(arguments)
    return engines_command.run(arguments)


def _profile_url(arguments: argparse.Namespace) -> int:
    from mesh.show.output import Showing
    from mesh.show.progress import working
    from router.profiling.measuring import measure_server
    from router.profiling.written import Stated, page, profile_of_server, show

    showing, url, seconds = Showing.of(arguments), server_url(arguments.url), 60 * arguments.minutes
    headers = _headers(arguments.api_key_env)
    with working(f"measuring {url}", seconds) as shown:
        measured = asyncio.run(
            measure_server(url, arguments.model, headers, seconds, shown, most_together=arguments.most_together)
        )
    stated = Stated(arguments.chunk_tokens, arguments.max_running, arguments.kv_tokens)
    profile = profile_of_server(measured, stated, url)
    show(profile, measured)
    _save(arguments, profile, url)
    showing.put(lambda: page(profile, measured))
    return 0


def server_url(text: str) -> str:
    """The URL without /v1. Raise `UserError` if it is none."""
    from router.servers.identify import base_url

    url = base_url(text if "//" in text else f"http://{text}")
    if not url.startswith(("http://", "https://")) or not url.partition("//")[2]:
        raise UserError(f"--url: {text!r} is no address of a server; write it like http://gpu-1:8000")
    return url


def _headers(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise UserError(f"--api-key-env: the environment has no {variable}; set it to the server's key")
    return {"authorization": f"Bearer {key}"}


def _save(arguments: argparse.Namespace, profile: "ProfileFile", url: str) -> None:
    from engines.models.cache import Cache
    from engines.profiling.store import ProfileStore, server_key

    assert profile.server is not None
    path = ProfileStore.of(Cache.of_user()).save(server_key(url, profile.server.model), profile)
    sys.stdout.write(f"saved {path}\n")
    if arguments.save is not None:
        try:
            arguments.save.write_text(profile.text(), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--save: {arguments.save} cannot be written: {error.strerror}") from None
        sys.stdout.write(f"saved {arguments.save}\n")
