"""Child of `bench.peers.engines`: the torch engine on one thread.

python -m bench.peers.torch_engine_speed MODEL_FOLDER DTYPE
"""

import sys
from pathlib import Path

from bench.peers.core_engine import CoreEngine
from bench.peers.rounds import Answers


def main(folder: str, dtype: str) -> None:
    answers = Answers()
    answers.serve(CoreEngine(Path(folder), dtype))


if __name__ == "__main__":
    main(*sys.argv[1:])
