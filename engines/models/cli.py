"""``mesh models``: what is cached, prepare, remove."""

import argparse
import sys
import time

from engines.models.cache import Cache, Entry
from engines.models.errors import ModelError
from engines.models.reference import FORMS, parse_reference
from engines.models.report import reported
from mesh.errors import EXIT_CONFIGURATION


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``models`` to the commands of ``mesh``."""
    parser = subparsers.add_parser("models", help="list, prepare and remove the models in the cache")
    parser.set_defaults(run=_list)
    actions = parser.add_subparsers(title="actions", metavar="[list | prepare | remove]")
    actions.add_parser("list", help="say what is in the cache, as without an action").set_defaults(run=_list)
    add_prepare(actions)
    remove = actions.add_parser("remove", help="delete models from the cache")
    remove.add_argument("references", nargs="+", metavar="REF", help="a reference as `mesh models` lists it")
    remove.set_defaults(run=_remove)


def add_prepare(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    prepare = actions.add_parser("prepare", help="fetch and convert models, unless that has been done")
    prepare.add_argument("references", nargs="+", metavar="REF", help=FORMS)
    prepare.set_defaults(run=_prepare)


def _list(_: argparse.Namespace) -> int:
    cache = Cache.of_user()
    entries = cache.entries()
    if not entries:
        sys.stdout.write(f"no models in {cache.root}\n")
        return 0
    for entry in entries:
        sys.stdout.write(f"{entry.reference()}\n  {entry.size_bytes() / 1e6:.0f} MB in {_place(entry)}\n")
    return 0


def _place(entry: Entry) -> str:
    return str(entry.prepared() or f"{entry.source} (fetched, not converted)")


def _prepare(arguments: argparse.Namespace) -> int:
    # Imported here: it loads the tools that convert, which listing does not need.
    from engines.models.prepare import prepare

    for reference in arguments.references:
        started = time.monotonic()
        with reported(reference) as progress:
            try:
                prepare(reference, progress)
            except ModelError as error:
                return _fail(str(error))
            except OSError as error:
                return _fail(f"{reference}: {error}")
        sys.stdout.write(f"model {reference.rpartition('/')[2]}: ready ({time.monotonic() - started:.1f} s)\n")
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    cache = Cache.of_user()
    try:
        for reference in arguments.references:
            name = str(parse_reference(reference))
            entry = cache.entry(name)
            if entry.reference() is None:
                return _fail(f"{name} is not in the cache; `mesh models` lists what is")
            entry.remove()
            sys.stdout.write(f"{name}: removed\n")
    except ModelError as error:
        return _fail(str(error))
    return 0


def _fail(reason: str) -> int:
    sys.stderr.write(f"mesh: {reason}\n")
    return EXIT_CONFIGURATION
