"""``mesh tap``: print the traffic of a mesh as it flows, decoded without knowing its schema."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology, print_line

if TYPE_CHECKING:
    import zmq

    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology

MAX_ITEMS = 8
MAX_TEXT = 120


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("tap", help="print the messages between processes as they flow")
    add_topology(parser, option=True, running=True)
    parser.add_argument("--type", action="append", metavar="NAME", help="only messages of this type, such as Submit")
    parser.add_argument("-n", "--count", type=int, metavar="N", help="end after N messages")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import zmq

    from mesh.topology.parse import load

    topology = load(options.file)
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        num_processes = _connect(topology, socket)
        sys.stderr.write(f"listening to {num_processes} processes of mesh {topology.name!r}; Ctrl-C ends\n")
        num_printed = 0
        while options.count is None or num_printed < options.count:
            line = describe(socket.recv_multipart(), options.type)
            if line is not None:
                print_line(f"{time.strftime('%H:%M:%S')} {line}")
                num_printed += 1
    return 0


def _connect(topology: "Topology", socket: "zmq.Socket[bytes]") -> int:
    from mesh.cluster.locate import locate
    from mesh.sockets.curve import secure_client
    from mesh.wire.frames import TOPIC_STATUS, TOPIC_TAP

    socket.linger = 0
    found = locate(topology)
    if found.key is not None:
        secure_client(socket, found.key)
    socket.subscribe(TOPIC_STATUS)
    socket.subscribe(TOPIC_TAP)
    for pair in found.directory.values():
        socket.connect(pair.broadcast)
    return len(found.directory)


def describe(frames: Sequence[bytes], types: Sequence[str] | None = None) -> str | None:
    """One line for ``[topic, version, sender, body, (receiver)]``; None if its type is not asked for."""
    import msgpack

    if len(frames) < 4:
        return f"? {len(frames)} frames"
    sender = _printable(frames[2]).split("@")[0]
    receiver = _printable(frames[4]) if len(frames) > 4 else "all"
    if frames[0] == b"status" and not frames[3]:
        return None if types else f"{sender} -> {receiver} lives"
    try:
        body = msgpack.unpackb(frames[3], strict_map_key=False)
    except Exception as error:  # whatever the library raises on what it cannot read
        return f"{sender} -> {receiver} malformed: {type(error).__name__}: {str(error)[:MAX_TEXT]}"
    kind = str(body.pop("type", "?")) if isinstance(body, dict) else "?"
    if types and kind not in types:
        return None
    return f"{sender} -> {receiver} {_printable(kind.encode(errors='replace'))} {abbreviate(body)}"


def _printable(text: bytes) -> str:
    """What a peer may have made up, without what would steer a terminal."""
    shown = text[:MAX_TEXT].decode(errors="replace")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in shown)


def abbreviate(value: object) -> str:
    """A value in one short line: long arrays and texts are cut, with their length."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{abbreviate(key)}: {abbreviate(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        items = [abbreviate(item) for item in value[:MAX_ITEMS]]
        more = [f"... {len(value)} items"] if len(value) > MAX_ITEMS else []
        return "[" + ", ".join(items + more) + "]"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    shown = _printable(text[:MAX_TEXT].encode(errors="replace"))
    return f"{shown}... {len(text)} characters" if len(text) > MAX_TEXT else shown
