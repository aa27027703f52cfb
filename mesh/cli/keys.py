"""``mesh keys``: who may use a mesh: makes, lists and revokes its access keys."""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import add_topology, print_line
from mesh.errors import UserError

if TYPE_CHECKING:
    from mesh.access.keys import AccessKey, KeyLimits
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("keys", help="make, list and revoke the keys of those who may use a mesh")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a key and print it, this once")
    add.add_argument("name", metavar="NAME", help="whose key it is")
    add.add_argument("--requests-per-minute", type=int, metavar="N", help="how many requests it may send in a minute")
    add.add_argument(
        "--tokens-per-minute", type=int, metavar="N", help="how many tokens of prompts and answers it may use"
    )
    add.add_argument("--in-flight", type=int, metavar="N", help="how many requests it may have at a time")
    add.add_argument("--services", metavar="A,B", help="the services that it may use (default: all)")
    add.add_argument("--max-priority", type=int, metavar="N", help="the highest priority that it may ask for")
    add.add_argument("--min-ttft-ms", type=float, metavar="N", help="the tightest TTFT that it may ask for")
    add.add_argument("--min-tpot-ms", type=float, metavar="N", help="the tightest TPOT that it may ask for")
    add.add_argument(
        "--expires", metavar="WHEN", help="when it ends: after 12h, 30d, 8w, or on a day such as 2031-01-31"
    )
    add.add_argument("--admin", action="store_true", help="it may also see metrics and /mesh")
    add.set_defaults(run=_add)
    listing = actions.add_parser("list", help="whose keys there are, and what they may do")
    listing.set_defaults(run=_list)
    revoke = actions.add_parser("revoke", help="take a key away; gateways refuse it within seconds")
    revoke.add_argument("name", metavar="NAME", help="whose key it is")
    revoke.set_defaults(run=_revoke)
    for action in (add, listing, revoke):
        add_topology(action, option=True, running=True)


def _add(options: argparse.Namespace) -> int:
    from mesh.access.key_file import change_keys
    from mesh.access.keys import make_key
    from mesh.added.stored import load_deployed

    topology = load_deployed(options.file)
    path = _path(topology)
    now = time.time()
    expires = None if options.expires is None else _moment(options.expires, now)
    key, text = make_key(options.name, _limits(options, topology), now, expires, admin=options.admin)
    _check(key)

    def with_new(keys: tuple["AccessKey", ...]) -> tuple["AccessKey", ...]:
        if any(other.name == key.name for other in keys):
            raise UserError(f"{path}: has a key {key.name!r} already; revoke that one first, or use another name")
        return (*keys, key)

    change_keys(path, with_new)
    print_line(text)
    sys.stderr.write(f"{path}: has the key of {key.name} now; it is shown this once\n")
    return 0


def _list(options: argparse.Namespace) -> int:
    from mesh.access.key_file import read_keys
    from mesh.topology.parse import load

    path = _path(load(options.file))
    try:
        keys = read_keys(path)
    except FileNotFoundError:
        keys = ()
    now = time.time()
    for key in keys:
        print_line(f"{key.name}  ms-{key.id}-...  {', '.join(_facts(key, now))}")
    if not keys:
        print_line(f"{path}: no keys; `mesh keys add NAME` makes one")
    return 0


def _revoke(options: argparse.Namespace) -> int:
    from mesh.access.key_file import change_keys
    from mesh.topology.parse import load

    path = _path(load(options.file))

    def without(keys: tuple["AccessKey", ...]) -> tuple["AccessKey", ...]:
        kept = tuple(key for key in keys if key.name != options.name)
        if len(kept) == len(keys):
            raise UserError(f"{path}: has no key {options.name!r}; {_hint(options.name, keys)}")
        return kept

    change_keys(path, without)
    print_line(f"{path}: the key of {options.name} is gone; what it has asked for already is answered")
    return 0


def _hint(name: str, keys: tuple["AccessKey", ...]) -> str:
    from mesh.suggestions import closest

    close = closest(name, [key.name for key in keys])
    return f"did you mean {close!r}?" if close else "`mesh keys list` shows those that there are"


def _path(topology: "Topology") -> Path:
    if topology.access is None or topology.access.keys is None:
        raise UserError(f'{topology.path}: access.keys: missing; write keys = "keys.json" under [access]')
    return topology.access.keys


def _limits(options: argparse.Namespace, topology: "Topology") -> "KeyLimits":
    from mesh.access.keys import KeyLimits
    from mesh.suggestions import suggestion

    services = None if options.services is None else tuple(dict.fromkeys(options.services.split(",")))
    known = [service.name for service in topology.offered]
    for name in services or ():
        if name not in known:
            raise UserError(f"--services: unknown service {name!r}; {suggestion(name, known)}")
    given = {name: getattr(options, name, None) for name in KeyLimits.__struct_fields__}
    return KeyLimits(**given | {"services": services})


def _check(key: "AccessKey") -> None:
    """By the rules of the file. Raise `UserError` naming the option that does not fit."""
    import msgspec

    from mesh.access.keys import AccessKey

    try:
        msgspec.convert(msgspec.to_builtins(key), AccessKey)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        if where.startswith("name"):
            wanted = "use up to 64 letters, digits, '_', '.' and '-'"
            raise UserError(f"NAME: {key.name!r} does not fit; {wanted}") from None
        option = where.rstrip("`").removeprefix("limits.").replace("_", "-")
        raise UserError(f"--{option}: {what}") from None


def _moment(text: str, now: float) -> float:
    """Seconds since the epoch."""
    wanted = "write a time such as 12h, 30d or 8w, or a day to come such as 2031-01-31"
    if found := re.fullmatch(r"(\d{1,6})([mhdw])", text):
        return now + int(found[1]) * _UNITS[found[2]]
    try:
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise UserError(f"--expires: {text!r} is no time; {wanted}") from None
    if moment <= now:
        raise UserError(f"--expires: {text} is over; {wanted}")
    return moment


def _facts(key: "AccessKey", now: float) -> Sequence[str]:
    facts = [f"made {_day(key.created)}"]
    if key.expires is not None:
        facts.append(f"expire{'d' if key.has_expired(now) else 's'} {_day(key.expires)}")
    if key.admin:
        facts.append("admin")
    limits: dict[str, Any] = {name: getattr(key.limits, name) for name in key.limits.__struct_fields__}
    for name, value in limits.items():
        if value is not None:
            text = "+".join(value) if isinstance(value, tuple) else f"{value:g}" if name.endswith("_ms") else str(value)
            facts.append(f"{name.replace('_', '-')} {text}")
    return facts


def _day(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d")
