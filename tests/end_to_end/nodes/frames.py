"""Reads what a switch has recorded, in the format of pcap."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE_HEADER, FRAME_HEADER = 24, struct.Struct("<IIII")
ETHERNET = 14  # bytes before those of IP
IPV4, TCP = b"\x08\x00", 6


class Payload(NamedTuple):
    """What one TCP segment carries. Addresses are of IP."""

    source: str
    target: str
    data: bytes


def payloads(path: Path) -> Iterator[Payload]:
    """All segments that carry something, in the order in which they were sent."""
    recorded, at = path.read_bytes(), FILE_HEADER
    while at < len(recorded):
        _, _, size, _ = FRAME_HEADER.unpack_from(recorded, at)
        at += FRAME_HEADER.size
        found = _payload(recorded[at : at + size])
        at += size
        if found is not None and found.data:
            yield found


def _payload(frame: bytes) -> Payload | None:
    packet = frame[ETHERNET:]
    if frame[12:14] != IPV4 or packet[9] != TCP:
        return None
    begin, (end,) = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)
    segment = packet[begin:end]
    return Payload(_address(packet[12:16]), _address(packet[16:20]), segment[(segment[12] >> 4) * 4 :])


def _address(packed: bytes) -> str:
    return socket.inet_ntoa(packed)
