"""The rows of ``attacks.toml``, which says how they are written."""

import gzip
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tools.harm.attacks.ground import COMPLETIONS, Answer, Ground
from tests.tools.harm.attacks.ways import WAYS, shoot
from tests.tools.harm.harm import ANY_END, LIKE_ANYONE, PLAIN, TURNED_AWAY, Harm
from tests.tools.harm.meshes import MODEL

GET = "GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n"
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
UPLOAD = {"content-type": "multipart/form-data; boundary=edge"}
CLOSE = "\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
Row = Mapping[str, Any]


def _with_headers(ground: Ground, row: Row, headers: Row) -> bytes:
    headers = {**ground.key(row.get("key")), **headers}
    if "body" in row:
        return ground.post(COMPLETIONS, expanded(row["body"]).encode("latin-1"), headers)
    return ground.completion(expanded(row.get("beside", {"max_tokens": 1})), headers)


# The request that a value of each kind stands for, in a row.
KINDS: Mapping[str, Callable[[Ground, Row, Any], bytes]] = {
    "forms": lambda ground, _, form: ground.completion({"structured_outputs": form}),
    "fields": lambda ground, row, fields: ground.completion(fields, ground.key(row.get("key"))),
    "headers": _with_headers,
    "posts": lambda ground, row, fields: ground.post(row["path"], {"model": MODEL, **fields}),
    "bodies": lambda ground, row, body: ground.post(row.get("path", COMPLETIONS), body.encode("latin-1")),
    "uploads": lambda ground, _, body: ground.post("/v1/files", body.encode("latin-1"), UPLOAD),
    "lines": lambda _, __, line: f"{line}{CLOSE}".encode("latin-1"),
    "gets": lambda _, __, rest: f"{GET}{rest}".encode("latin-1"),
    "heads": lambda _, __, rest: f"{HEAD}{rest}".encode("latin-1"),
    "bytes": lambda _, __, data: data.encode("latin-1"),
    "noise": lambda ground, _, size: ground.random.randbytes(size),
}


def expanded(value: Any) -> Any:
    """The value itself, or what the words of ``attacks.toml`` stand for in it."""
    if isinstance(value, list):
        return [expanded(one) for one in value]
    if not isinstance(value, dict):
        return value
    word = next((word for word in WORDS if word in value), None)
    return WORDS[word](value) if word else {key: expanded(one) for key, one in value.items()}


WORDS: Mapping[str, Callable[[Row], Any]] = {
    "times": lambda value: expanded(value["of"]) * int(value["times"]),
    "numbered": lambda value: _each(value, range(value["numbered"])),
    "each": lambda value: _each(value, expanded(LISTS.get(str(value["each"]), value["each"]))),
    "nested": lambda value: _nested(value["of"], value["nested"], value["around"]),
    "join": lambda value: "".join(expanded(value["join"])),
    "gzip": lambda value: gzip.compress(expanded(value["gzip"]).encode()).decode("latin-1"),
}


def _each(value: Row, items: Iterable[Any]) -> list[Any]:
    """With each item in the place of its name, and with the number that follows it in that of ``{next}``."""
    pattern, name, found = json.dumps(value["of"]), value.get("as", "n"), []
    for item in items:
        text = pattern.replace(f"{{{name}}}", json.dumps(str(item))[1:-1])
        found.append(expanded(json.loads(text.replace("{next}", str(item + 1)) if isinstance(item, int) else text)))
    return found


def _nested(of: Any, times: int, core: Any) -> Any:
    pattern, text = json.dumps(of), json.dumps(core)
    for number in range(times):
        text = pattern.replace('"{inner}"', text).replace("{n}", str(number))
    return json.loads(text)


def requests(row: Row, ground: Ground) -> Iterator[bytes]:
    """Made when they are sent: some are large."""
    [kind] = row.keys() & KINDS.keys()
    paths = row["path"] if isinstance(row.get("path"), list) else [row.get("path", COMPLETIONS)]
    for path in paths:
        for value in _flat(expanded(row[kind])):
            yield KINDS[kind](ground, {**row, "path": path}, value)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, list) else [value]


def _attack(family: str, name: str, row: Row) -> Harm:
    async def run(ground: Ground) -> Sequence[Answer]:
        for way, send in WAYS.items():
            if way in row:
                return await send(ground, requests(row, ground), **row[way])
        return await shoot(ground, requests(row, ground), row.get("at_once", 4))

    return Harm(
        family,
        name,
        run,
        row.get("seen", ""),
        mesh=row.get("mesh", PLAIN),
        in_short=row.get("in_short", False),
        load=row.get("load", 0),
        right=TURNED_AWAY if row.get("is_strict") else ANY_END if row.get("may_wait") else LIKE_ANYONE,
    )


_ROWS = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text())
LISTS: Mapping[str, list[Any]] = _ROWS.pop("lists")
ATTACKS = tuple(_attack(family, name, row) for family, rows in _ROWS.items() for name, row in rows.items())


def shown_picture(model: str) -> dict[str, Any]:
    """Return a chat that shows a small picture."""
    url = expanded(LISTS["pictures"][0])
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    return {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": parts}]}
