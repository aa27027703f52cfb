"""``mesh profile``: what engines cost, ours and the servers of others, kept for simulations."""

import argparse
from pathlib import Path
from typing import Final

from engines.profiling import command as engines_command
from mesh.errors import UserError

DEFAULT_MINUTES: Final = 5.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``profile`` to the commands of ``mesh``."""
    parser = engines_command.register(subparsers)
    parser.usage = (
        "mesh profile [TOPOLOGY] [--repeats N | --live] [--plot FILE] [--html FILE]\n"
        "mesh profile --url URL [--minutes M] [--model NAME] [--save FILE] [--plot FILE]\n"
        "mesh profile --url ADMIN_URL --passive [--minutes M] [--model NAME] [--save FILE]\n"
        "mesh profile --from FILE [FILE ...] [--save FILE] [--plot FILE]"
    )
    group = parser.add_argument_group("a server that is not ours (vLLM, SGLang, llama.cpp, any with the OpenAI API)")
    group.add_argument("--url", metavar="URL", help="drive this server with a load that tells its costs apart")
    group.add_argument(
        "--minutes",
        type=_minutes,
        default=DEFAULT_MINUTES,
        metavar="M",
        help="how long it takes at most (default: 5); less when all is known",
    )
    group.add_argument("--passive", action="store_true", help="only listen: --url is the admin address of a gateway")
    group.add_argument(
        "--from",
        dest="sources",
        nargs="+",
        metavar="FILE",
        help="read what vllm bench serve, aiperf or guidellm measured, or prometheus:URL of vLLM servers",
    )
    group.add_argument("--model", metavar="NAME", help="the model (default: the only one that the server has)")
    group.add_argument("--api-key-env", metavar="NAME", help="the environment variable that holds the server's key")
    group.add_argument(
        "--chunk-tokens", type=_count, metavar="N", help="prompt tokens of an iteration, where you know it"
    )
    group.add_argument("--max-running", type=_count, metavar="N", help="requests at a time, where you know it")
    group.add_argument("--kv-tokens", type=_count, metavar="N", help="tokens that KV memory holds, where you know it")
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
    if arguments.passive and arguments.url is None:
        raise UserError("--passive: listen to whom? Give --url with a gateway's admin address; `mesh status` tells it")
    if arguments.passive:
        for name in ("from", "plot", "html"):
            if getattr(arguments, "sources" if name == "from" else name) is not None:
                raise UserError(f"--{name}: is not for --passive, which only listens; leave one of them out")
    if arguments.url is None and arguments.sources is None:
        return engines_command.run(arguments)
    # Imported here: other commands need none of it.
    from simulation.command.server_profiles import profile_from, profile_passive, profile_url

    if arguments.sources is not None:
        return profile_from(arguments)
    return profile_passive(arguments) if arguments.passive else profile_url(arguments)
