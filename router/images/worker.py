"""``python -m router.images.worker SOCKET``: decodes the images of a gateway's clients, one at a time.

Decoders are where files of strangers do harm. This process has nothing to lose: no sockets, no keys, a bound of memory
and of CPU time. It ends when the other side of the socket is closed; the gateway starts another when it dies.
"""

import resource
import signal
import socket
import sys
from hashlib import blake2b
from pathlib import Path

from engines.images.cutting import ImageError, cut
from router.images.messages import CutImage, ImageCut, ImageRefused, encode, orders, receive, send

MEMORY_BYTES = 768 * 2**20  # of addresses, beyond what it has when it begins
DIGEST_BYTES = 32


def main(arguments: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends with the process that it works for
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection = socket.socket(fileno=int(arguments[0]))
    _limit_memory()
    while True:
        try:
            order = orders.decode(receive(connection))
            signal.setitimer(signal.ITIMER_PROF, order.cpu_s)  # nobody handles its signal
            answer = _answer(order)
            signal.setitimer(signal.ITIMER_PROF, 0)
            send(connection, encode(answer))
        except (EOFError, OSError):
            return


def _answer(order: CutImage) -> ImageCut | ImageRefused:
    try:
        tiles = cut(order.data, order.form, order.max_pixels)
    except ImageError as error:
        return ImageRefused(str(error))
    except MemoryError:
        return ImageRefused("takes too much memory to decode")
    digest = blake2b(tiles.pixels, digest_size=DIGEST_BYTES, salt=_salt(tiles.rows, tiles.columns)).digest()
    return ImageCut(tiles.rows, tiles.columns, tiles.pixels, digest)


def _salt(rows: int, columns: int) -> bytes:
    return rows.to_bytes(4) + columns.to_bytes(4)


def _limit_memory() -> None:
    limit = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize() + MEMORY_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1:])
