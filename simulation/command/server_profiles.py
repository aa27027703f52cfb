"""Profiles of servers that are not ours: measured now, listened to at a gateway, or read from what others measured."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engines.costs.profiles import ProfileFile
from engines.models.cache import Cache
from engines.profiling.store import ProfileStore, server_key
from mesh.cli.arguments import print_line
from mesh.errors import CommandError, UserError
from mesh.show.output import Showing
from mesh.show.progress import working
from mesh.suggestions import one_of
from mesh.topology import values
from router.api.costs import LearntRow
from router.profiling.measuring import MeasuredServer, measure_server
from router.profiling.passive import is_learnt, listen, profile_of_row, show_learnt
from router.profiling.published.files import read_file
from router.profiling.published.prometheus import PREFIX, read_prometheus
from router.profiling.published.seen import Published, joined
from router.profiling.published.window_fit import fit_published, is_loaded
from router.profiling.server import ServerSays
from router.profiling.written import Stated, page, profile_of_server, show
from router.servers.facts import ServerKind
from router.servers.http import as_key
from router.servers.identify import base_url

LOADED = "no request came while the server was quiet: what prompts take has the time in it for which they waited"


def profile_url(arguments: argparse.Namespace) -> int:
    """Drive the server at ``--url``."""
    showing, url, seconds = Showing.of(arguments), server_url(arguments.url), 60 * arguments.minutes
    headers = _headers(arguments.api_key_env)
    with working(f"measuring {url}", seconds) as shown:
        measured = asyncio.run(
            measure_server(url, arguments.model, headers, seconds, shown, most_together=arguments.most_together)
        )
    profile = profile_of_server(measured, _stated(arguments), url)
    _tell(arguments, showing, profile, measured, server_key(url, measured.says.model))
    return 0


def profile_passive(arguments: argparse.Namespace) -> int:
    """Listen to the gateway whose admin address is ``--url``."""
    url, seconds = server_url(arguments.url), 60 * arguments.minutes
    with working(f"listening to {url}", seconds) as shown:
        headers = _headers(arguments.api_key_env)
        wanted = asyncio.run(listen(url, headers, seconds, shown, lambda rows: _wanted(arguments, url, rows)))
    if not wanted:
        raise CommandError(f"{url} has heard of no engine; `mesh status` tells how they are")
    show_learnt(wanted)
    learnt = [row for row in wanted if is_learnt(row)]
    for row in learnt:
        _save(arguments, profile_of_row(row, url, _stated(arguments)), _key_of_row(row, url))
    if unknown := ", ".join(f"{row.service} on {row.engine}" for row in wanted if row not in learnt):
        problem = f"not saved, as too few requests came to learn anything: {unknown}"
        if not learnt:
            raise CommandError(problem)
        print_line(problem)
    return 0


def _wanted(arguments: argparse.Namespace, url: str, rows: Sequence[LearntRow]) -> list[LearntRow]:
    """Those that ``--model`` names. Raise `UserError` if there are none, or more than can be saved."""
    wanted = [row for row in rows if arguments.model in (None, row.service, row.model, row.engine)]
    if not wanted:
        names = one_of(sorted({name for row in rows for name in (row.engine, row.service)}))
        raise UserError(f"--model: {url} knows no engine or service {arguments.model!r}; use {names}")
    if arguments.save is not None and len(wanted) > 1:
        names = one_of(sorted({row.engine for row in wanted}))
        raise UserError(f"--save: {url} knows {len(wanted)} costs; name an engine or a service with --model: {names}")
    return wanted


def profile_from(arguments: argparse.Namespace) -> int:
    """Read what others measured."""
    showing = Showing.of(arguments)
    published = joined([_read(source, arguments.model) for source in arguments.sources])
    terms = fit_published(published)
    model = arguments.model or published.model
    says = ServerSays(model, ServerKind.OPENAI, kv_tokens=published.kv_tokens)
    remarks = [LOADED] if is_loaded(published) else []
    measured = MeasuredServer(says, terms, (), 0.0, published.num_requests, 0, 0, remarks)
    where = server_url(arguments.url) if arguments.url else published.about
    profile = profile_of_server(measured, _stated(arguments), where, f"mesh profile --from {published.about}")
    key = server_key(where, model) if arguments.url else server_key(f"from//{_stem(arguments.sources)}", model)
    _tell(arguments, showing, profile, measured, key)
    return 0


def _read(source: str, model: str | None) -> Published:
    if source.startswith(PREFIX):
        return asyncio.run(read_prometheus(server_url(source.removeprefix(PREFIX), f"--from: {PREFIX}"), model))
    return read_file(Path(source))


def _stem(sources: Sequence[str]) -> str:
    return Path(sources[0]).stem if not sources[0].startswith(PREFIX) else "prometheus"


def _stated(arguments: argparse.Namespace) -> Stated:
    return Stated(arguments.chunk_tokens, arguments.max_running, arguments.kv_tokens)


def _key_of_row(row: LearntRow, url: str) -> str:
    return server_key(row.url or f"{url}/{row.engine}", row.model or row.service)


def server_url(text: str, option: str = "--url: ") -> str:
    """The URL without /v1. Raise `UserError` if it is none, which names the ``option``."""
    try:
        return base_url(values.server_url(text if "//" in text else f"http://{text}"))
    except ValueError as error:
        raise UserError(f"{option}{error}") from None


def _headers(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    return {"authorization": f"Bearer {as_key(os.environ.get(variable), f'--api-key-env {variable}')}"}


def _tell(
    arguments: argparse.Namespace, showing: Showing, profile: ProfileFile, measured: MeasuredServer, key: str
) -> None:
    show(profile, measured)
    _save(arguments, profile, key)
    showing.put(lambda: page(profile, measured))


def _save(arguments: argparse.Namespace, profile: ProfileFile, key: str) -> None:
    sys.stdout.write(f"saved {ProfileStore.of(Cache.of_user()).save(key, profile)}\n")
    if arguments.save is None:
        return
    try:
        arguments.save.write_text(profile.text(), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--save: {arguments.save} cannot be written: {error.strerror}") from None
    sys.stdout.write(f"saved {arguments.save}\n")
