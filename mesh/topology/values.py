"""Readers of single TOML values: each takes what the parser found or raises `ValueError` saying what would be right."""

import re
from collections.abc import Callable, Collection
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, urlsplit

from mesh.suggestions import closest, one_of

Reader = Callable[[object], Any]

_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>B|KiB|MiB|GiB|KB|MB|GB)$")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_HOST = re.compile(r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$")
_DEVICE = re.compile(r"^[a-z]+(:\d+)?$")
_MODEL = re.compile(r"^(?P<scheme>pypi|hf):(?P<rest>.*)$")
_PYPI = re.compile(r"^[A-Za-z0-9._-]+==[^/]+/.+$")
_HEADER_NAME = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OWN_HEADERS = frozenset({"connection", "content-length", "content-type", "host", "transfer-encoding"})
_HUB = re.compile(r"^[^/\s]+/[^/\s]+$")


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a text; write it in quotes")
    return value


def json_lines(value: object) -> str:
    if not isinstance(value, str) or not value.endswith(".jsonl"):
        raise ValueError(f'{value!r} is not a file of JSON lines; use a name that ends in .jsonl, such as "day.jsonl"')
    return value


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is not a boolean; use true or false")
    return value


def integer(minimum: int, maximum: int | None = None) -> Reader:
    wanted = (
        f"a whole number of at least {minimum}" if maximum is None else f"a whole number from {minimum} to {maximum}"
    )

    def read(value: object) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
            raise ValueError(f"{value!r} does not fit; use {wanted}")
        return value  # type: ignore[return-value]

    return read


def integers(minimum: int, maximum: int) -> Reader:
    """A list of whole numbers, each once, in their order."""
    read_one = integer(minimum, maximum)

    def read(value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{value!r} is not a list of whole numbers; use one such as [256, 512]")
        return tuple(sorted(set(map(read_one, value))))

    return read


def positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{value!r} does not fit; use a number greater than 0")
    return float(value)


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise ValueError(f"{value!r} is not a number; use one such as 64")
    return float(value)


def milliseconds(value: object) -> float:
    """Milliseconds in the file, seconds inside."""
    return positive(value) / 1000


def milliseconds_or_none(value: object) -> float:
    """Milliseconds in the file, seconds inside; 0 is allowed."""
    return 0.0 if value in (0, 0.0) and not isinstance(value, bool) else milliseconds(value)


def fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"{value!r} does not fit; use a fraction above 0 and up to 1")
    return float(value)


def share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{value!r} does not fit; use a share from 0 (none) to 1 (all)")
    return float(value)


def collector_url(value: object) -> str:
    """Keys are for the environment: the URL holds none."""
    wanted = 'write a URL such as "http://127.0.0.1:4318"'
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text; {wanted}")
    parts = _split(value)
    if parts is not None and "@" in parts.netloc:
        raise ValueError("holds a password; put what the collector asks for into OTEL_EXPORTER_OTLP_HEADERS")
    if parts is None or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is not the URL of a collector; {wanted}")
    return value


def server_url(value: object) -> str:
    """Where an HTTP server is. Keys have a setting of their own: the URL holds none."""
    wanted = 'write a URL such as "http://gpu-1:8000"'
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text; {wanted}")
    parts = _split(value)
    if parts is not None and "@" in parts.netloc:
        shown = value.replace(parts.netloc.rpartition("@")[0], "...")
        raise ValueError(f"{shown!r} holds a password; name a key's file in api_key_file, its variable in api_key_env")
    if parts is None or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is not the URL of a server; {wanted}")
    return value.rstrip("/").removesuffix("/v1")


def urls(value: object) -> tuple[str, ...]:
    """Read one URL or several."""
    found = tuple(map(server_url, value if isinstance(value, list) else [value]))
    if not found:
        raise ValueError('[] names no server; write a URL such as "http://gpu-1:8000", or a list of them')
    if twice := [url for number, url in enumerate(found) if url in found[:number]]:
        raise ValueError(f"{twice[0]} is there twice; name each server once")
    return found


def event_endpoints(value: object) -> tuple[str, ...]:
    """One or several, of ZeroMQ."""
    found = tuple(value if isinstance(value, list) else [value])
    for endpoint in found:
        if not isinstance(endpoint, str) or not re.fullmatch(r"tcp://[^/:\s]+:\d{1,5}", endpoint):
            raise ValueError(f'{endpoint!r} is no place of events; write it like "tcp://gpu-1:5557"')
        if endpoint.startswith("tcp://*"):
            raise ValueError(f'{endpoint!r} names no host; write where the server is, like "tcp://gpu-1:5557"')
    return found


def tokenizer(value: object) -> str:
    """Parse where the tokenizer of a service on servers is."""
    reference = text(value)
    if re.match(r"^[a-z]+:(?!//)", reference) and not re.match(r"^hf:[^/\s]+/[^/\s]+$", reference):
        raise ValueError(f'{reference!r} is no tokenizer; use hf:org/name, the path of a folder, or "server"')
    return reference


def url_or(*words: str) -> Reader:
    def read(value: object) -> str:
        return str(value) if value in words else server_url(value)

    return read


def served(value: object) -> tuple[str, ...] | dict[str, str]:
    """Names of services; of those on a server, also a table of what it calls them."""
    if not isinstance(value, dict):
        return names(value)
    if not value or not all(isinstance(name, str) and name for name in value.values()):
        raise ValueError(f'{value!r} does not say what the server calls them; write {{ chat = "org/model" }}')
    return dict(value)


def headers(value: object) -> dict[str, str]:
    """Parse a table of HTTP headers by name."""
    found = texts(value)
    for name, content in found.items():
        if not _HEADER_NAME.match(name) or any(ord(one) < 32 or ord(one) > 126 for one in content):
            raise ValueError(f'{name!r} is not a header; write it like {{ x-tenant = "a" }}')
        if name.lower() in _OWN_HEADERS:
            raise ValueError(f"{name!r} is set by the gateway; leave it out")
    return found


def _split(value: str) -> SplitResult | None:
    """The parts of an HTTP URL; None: it is none."""
    try:
        parts = urlsplit(value)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_right else None


def fractions(value: object) -> dict[str, float]:
    """Parse a table of fractions by name."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table; write it like {{ chat = 0.6, code = 0.4 }}")
    return {name: fraction(part) for name, part in value.items()}


def options(value: object) -> dict[str, object]:
    """Parse a table of options by name. The backend says which values each may have."""
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table; write it like {{ enforce_eager = true }}")
    return dict(value)


def temperature(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise ValueError(f"{value!r} does not fit; use a temperature from 0 (greedy) to 2")
    return float(value)


def size(value: object) -> int:
    """Read a number of bytes from text such as ``"256MiB"``."""
    match = _SIZE.match(value) if isinstance(value, str) else None
    if match is None or float(match["number"]) == 0:
        raise ValueError(f'{value!r} is not a size; write a number and a unit, such as "256MiB" or "2GiB"')
    return int(float(match["number"]) * _UNITS[match["unit"]])


def names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f'{value!r} is not a list of names; write them like ["a", "b"]')
    return tuple(dict.fromkeys(value))


def different_names(value: object) -> tuple[str, ...]:
    found = names(value)
    if isinstance(value, list) and len(found) < len(value):
        twice = next(item for item in found if value.count(item) > 1)
        raise ValueError(f"{twice!r} is named {value.count(twice)} times; name each once")
    return found


def networks(value: object) -> tuple[str, ...]:
    """IP addresses, and networks of them."""
    wanted = 'write addresses and networks, such as ["10.0.0.7", "10.1.0.0/16"]'
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{value!r} is not a list of addresses; {wanted}")
    for item in value:
        try:
            ip_network(item, strict=False)
        except ValueError:
            raise ValueError(f"{item!r} is no address and no network; {wanted}") from None
    return tuple(value)


def ip_or_any(value: object) -> str:
    """What a socket can be bound to: an IP address of the machine, or ``"*"`` for all."""
    wanted = 'write an IP address of this machine, or "*" for all of them'
    if value == "*":
        return "*"
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no address; {wanted}")
    try:
        return str(ip_address(value))
    except ValueError:
        raise ValueError(f"{value!r} is no IP address; {wanted}") from None


def host(value: object) -> str:
    """What a gateway listens at: an IP address, or a name that stands for one. A port is a key of its own."""
    given = text(value)
    if not _is_ip(given) and _HOST.fullmatch(given) is None:
        words = "write an IP address or a host's name; its port is a key of its own"
        raise ValueError(f"{value!r} is no address; {words}")
    return given


def _is_ip(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def texts(value: object) -> dict[str, str]:
    """Parse a table of texts by name."""
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ValueError(f'{value!r} is not a table of texts; write it like {{ zone = "a" }}')
    return dict(value)


def choice(words: Collection[str], what: str, make: Callable[[str], Any] = str) -> Reader:
    def read(value: object) -> Any:
        if not isinstance(value, str) or value not in words:
            close = closest(value, words) if isinstance(value, str) else None
            wanted = f"did you mean {close!r}?" if close else f"use {one_of(words)}"
            raise ValueError(f"{value!r} is not {what}; {wanted}")
        return make(value)

    return read


def choices(words: Collection[str], what: str, make: Callable[[str], Any] = str) -> Reader:
    one = choice(words, what, make)

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ValueError(f"{value!r} is not a list; write it like {list(words)}")
        return tuple(dict.fromkeys(one(item) for item in value))

    return read


def device(value: object) -> str:
    if not isinstance(value, str) or not _DEVICE.match(value):
        raise ValueError(f'{value!r} is not a device; use "cpu", "cuda" or "cuda:1"')
    return value


def model(value: object) -> str:
    reference = text(value)
    match = _MODEL.match(reference)
    if match is None:
        if re.match(r"^[a-z]+:", reference):
            raise ValueError(
                f"{reference!r} is of no known kind; use pypi:PACKAGE==VERSION/path, hf:org/name or a path"
            )
        return reference
    if match["scheme"] == "pypi" and not _PYPI.match(match["rest"]):
        raise ValueError(f"{reference!r} is incomplete; use pypi:PACKAGE==VERSION/path/in/wheel")
    if match["scheme"] == "hf" and not _HUB.match(match["rest"]):
        raise ValueError(f"{reference!r} is incomplete; use hf:org/name")
    return reference
