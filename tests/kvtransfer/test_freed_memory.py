"""Freed memory is seen to stay from outside: as resident memory of a process."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from pathlib import Path
from kvtransfer.freed_memory import keep_freed_memory

SIZE, PAGE = 8 * 2**20, 4096
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

def use_and_free():
    pieces = [libc.malloc(SIZE) for _ in range(4)]
    for piece in pieces:
        ctypes.memset(piece, 1, SIZE)
    for piece in pieces:
        libc.free(piece)

kept = keep_freed_memory() if sys.argv[1] == "keep" else True
before = resident()
thread = threading.Thread(target=use_and_free)
thread.start()
thread.join()
print(kept, (resident() - before) // SIZE)
"""


def run(mode):
    command = [sys.executable, "-c", PROGRAM, mode]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_stays():
    is_kept, num_pieces = run("keep")
    if is_kept == "False":
        pytest.skip("a C library that cannot be told")
    assert int(num_pieces) >= 3
    assert int(run("as it is")[1]) == 0, "the test shows nothing: memory stays in any case"
