"""Attacks that are plain data: the rows of ``attacks.toml``."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.harm.deployment import MODEL
from bench.harm.harm import LIKE_ANYONE, PLAIN, TURNED_AWAY, Harm
from bench.harm.siege.attack import shoot
from bench.harm.siege.ground import COMPLETIONS, Ground

GET = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n"
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
ONE_TOKEN = {"max_tokens": 1}
CLOSE = "\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"

# The request that a value of each kind stands for, in a row.
KINDS: Mapping[str, Callable[[Ground, Mapping[str, Any], Any], bytes]] = {
    "forms": lambda ground, _, form: ground.completion({"structured_outputs": form}),
    "fields": lambda ground, _, fields: ground.completion(fields),
    "headers": lambda ground, row, headers: ground.completion(expanded(row.get("beside", ONE_TOKEN)), headers),
    "posts": lambda ground, row, fields: ground.post(row["path"], {"model": MODEL, **fields}),
    "bodies": lambda ground, row, body: ground.post(row.get("path", COMPLETIONS), body.encode("latin-1")),
    "lines": lambda _, __, line: f"{line}{CLOSE}".encode("latin-1"),
    "gets": lambda _, __, rest: f"{GET}{rest}".encode("latin-1"),
    "heads": lambda _, __, rest: f"{HEAD}{rest}".encode("latin-1"),
    "bytes": lambda _, __, data: data.encode("latin-1"),
}


def expanded(value: Any) -> Any:
    """The value itself, or what ``of``, ``times``, ``numbered`` and ``join`` stand for in it."""
    match value:
        case {"of": of, "times": int(times)}:
            return expanded(of) * times
        case {"of": of, "numbered": int(count)}:
            pattern = json.dumps(of)
            return [expanded(json.loads(pattern.replace("{n}", str(number)))) for number in range(count)]
        case {"join": parts}:
            return "".join(expanded(parts))
        case dict():
            return {key: expanded(one) for key, one in value.items()}
        case list():
            return [expanded(one) for one in value]
        case _:
            return value


def requests(row: Mapping[str, Any], ground: Ground) -> Iterator[bytes]:
    """Made when they are sent: some are large."""
    [kind] = row.keys() & KINDS.keys()
    for value in expanded(row[kind]):
        yield KINDS[kind](ground, row, value)


def _attack(family: str, name: str, row: Mapping[str, Any]) -> Harm:
    return Harm(
        family,
        name,
        shoot(partial(requests, row), row.get("at_once", 4)),
        row.get("seen", ""),
        mesh=row.get("mesh", PLAIN),
        in_short=row.get("in_short", False),
        load=row.get("load", 0),
        right=TURNED_AWAY if row.get("is_strict") else LIKE_ANYONE,
    )


_ROWS = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text())
ATTACKS = tuple(_attack(family, name, row) for family, rows in _ROWS.items() for name, row in rows.items())
