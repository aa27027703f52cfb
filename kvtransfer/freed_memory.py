"""Memory that was freed stays with the process, for the next blocks that arrive.

ZeroMQ receives each frame into memory of its own. The C library gives large pieces back to the kernel when they are
freed. Fresh pieces cost about as much as the copy that they are for, as the kernel maps and clears each page anew.
"""

import ctypes
import os

KEPT_BYTES = 128 * 2**20  # all frames that several transfers have under way
LARGEST_BYTES = 32 * 2**20  # glibc takes no more; larger pieces are the kernel's
AHEAD_BYTES = 16 * 2**20

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> bool:
    """Call it before threads start. False: this C library cannot be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    settings = ((_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_TOP_PAD, AHEAD_BYTES), (_M_MMAP_THRESHOLD, LARGEST_BYTES))
    return all(bool(mallopt(name, value)) for name, value in settings)
