"""Defines the messages of the process that decodes images: MessagePack behind its length, on a Unix socket."""

import socket
import struct
from typing import Final

import msgspec

from engines.images.form import ImageForm

MOST_BYTES: Final = 256 * 2**20  # of a message
_HEAD: Final = struct.Struct("<I")


class CutImage(msgspec.Struct, frozen=True):
    """Decode this file and cut it."""

    data: bytes
    form: ImageForm
    max_pixels: int
    cpu_s: float  # that it may take


class ImageCut(msgspec.Struct, frozen=True, tag=True):
    """The tiles of an image (`engines.images.cutting.Tiles`). ``digest``: of them."""

    rows: int
    columns: int
    pixels: bytes
    digest: bytes


class ImageRefused(msgspec.Struct, frozen=True, tag=True):
    """The image cannot be shown to a model."""

    reason: str


encode = msgspec.msgpack.Encoder().encode
orders: Final = msgspec.msgpack.Decoder(CutImage)
answers: Final[msgspec.msgpack.Decoder[ImageCut | ImageRefused]] = msgspec.msgpack.Decoder(ImageCut | ImageRefused)


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_HEAD.pack(len(message)))
    connection.sendall(message)


def receive(connection: socket.socket) -> bytes:
    """Return the next message. Raise `EOFError` at the end, `OSError` if it is broken."""
    [size] = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if size > MOST_BYTES:
        raise OSError(f"a message of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        taken = connection.recv_into(view[done:])
        if not taken:
            raise EOFError
        done += taken
    return bytes(data)
