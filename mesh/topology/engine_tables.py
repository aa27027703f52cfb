"""Tables of engines: with other numbers of them than a file says, and those of servers that run already."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology import keys
from mesh.topology.lines import KeyPath
from mesh.topology.report import Report
from mesh.topology.schema import ServerSpec

WITH_URL: Final = frozenset({"backend", "count", "max_running", "profile", "role", "services"})  # beside keys.SERVER
NOT_OURS: Final = "is for engines that the mesh starts, and this one runs already (url); leave it out"


def with_counts(path: Path, document: Mapping[str, Any], counts: Mapping[str, int]) -> Mapping[str, Any]:
    """The document of ``path`` with so many engines in these tables. Raise `UserError` if there is no such table."""
    if not counts:
        return document
    tables = document.get("engines")
    known = (
        {name: table for name, table in tables.items() if isinstance(table, dict)} if isinstance(tables, dict) else {}
    )
    for name in counts:
        if name not in known:
            raise UserError(f"{path}: has no [engines.{name}]; {suggestion(name, known)}")
    changed = {name: _with_count(known[name], count) for name, count in counts.items()}
    return {**document, "engines": {**known, **changed}}


def _with_count(table: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """Servers beyond those of the file are as many of the same, in turns: nobody but a simulation asks for them."""
    urls = table.get("url")
    if urls is None:
        return {**table, "count": count}
    return {**table, "count": count, "url": list(islice(cycle(urls if isinstance(urls, list) else [urls]), count))}


def take_servers(
    fields: dict[str, Any],
    table: Mapping[str, Any],
    where: KeyPath,
    services: Sequence[str],
    resolve: Callable[[str], str],
    report: Report,
) -> Sequence[ServerSpec]:
    """Take what is of servers out of the ``fields`` of a table of engines. None without a ``url``: the mesh starts its
    engines. ``services``: for a table that names none.
    """
    own = {key.field: fields.pop(key.field) for key in keys.SERVER.values() if key.field in fields}
    names = fields["services"] if isinstance(fields["services"], Mapping) else {}
    fields["services"] = tuple(services if "url" in table and "services" not in table else fields["services"])
    if "url" not in table:
        _check_ours(own, names, where, report)
        return ()
    for key in table.keys() - keys.SERVER.keys() - WITH_URL:
        if key in keys.ENGINE:
            report.add((*where, key), NOT_OURS)
    urls = own.pop("url", ())
    endpoints = own.pop("kv_events", (None,) * len(urls))
    if len(endpoints) != len(urls):
        report.add((*where, "kv_events"), f"{len(endpoints)} places with {len(urls)} URLs; write one for each url")
    if urls and fields.get("count", len(urls)) != len(urls):
        report.add((*where, "count"), f"{fields['count']} engines with {len(urls)} URLs; write one url for each")
    fields["count"] = max(1, len(urls))
    for key in ("api_key_file", "tls_ca"):
        if key in own:
            own[key] = Path(resolve(own[key]))
    return [ServerSpec(url, names, **own, kv_events=place) for url, place in zip(urls, endpoints, strict=False)]


def _check_ours(own: Mapping[str, Any], names: Mapping[str, str], where: KeyPath, report: Report) -> None:
    of_field = {key.field: name for name, key in keys.SERVER.items()}
    for name in (*(of_field[field] for field in own), *(["services"] if names else [])):
        what = "is a table" if name == "services" else "is for a server that runs already"
        report.add((*where, name), f'{what}, and there is no url; add url = "http://HOST:PORT", or leave it out')
