"""``python -m router.ui.what_if_child PARENT ARGUMENTS...``: ``mesh ARGUMENTS`` within bounds, for a gateway.

It takes what processors others leave, bounded memory, and ends with its parent. Whatever goes wrong is one line.
"""

import os
import resource
import sys
from collections.abc import Sequence
from typing import Final

from mesh.process.ties import Ties

NICENESS: Final = 19
CPU_S: Final = 600
MEMORY_BYTES: Final = 4 << 30
FILE_BYTES: Final = 16 << 20
BOUNDS: Final = {
    resource.RLIMIT_CPU: CPU_S,
    resource.RLIMIT_AS: MEMORY_BYTES,
    resource.RLIMIT_FSIZE: FILE_BYTES,
    resource.RLIMIT_CORE: 0,
}


def main(argv: Sequence[str]) -> int:
    parent, *arguments = argv
    Ties(parent=int(parent)).end_with_parent()
    _bound()
    from mesh.cli.entry import main as mesh

    try:
        return mesh(arguments)
    except MemoryError:
        return _failed(f"the simulation needs more than {MEMORY_BYTES >> 30} GiB of memory")
    except Exception as error:
        return _failed(f"the simulation failed: {type(error).__name__}: {str(error)[:500]}")


def _bound() -> None:
    os.nice(NICENESS)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # each thread takes address space
    for kind, most in BOUNDS.items():
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, hard))


def _failed(words: str) -> int:
    sys.stderr.write(f"{' '.join(words.split())}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
