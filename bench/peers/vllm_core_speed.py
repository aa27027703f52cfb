"""Child of `bench.peers.vllm_under_core`, under an interpreter that has vLLM: a vLLM engine as a mesh has it.

python -m bench.peers.vllm_core_speed MODEL_FOLDER eager|compiled
"""

import sys
from pathlib import Path

from bench.peers.core_engine import CoreEngine
from bench.peers.rounds import Answers


def main(folder: str, mode: str) -> None:
    answers = Answers()
    options = {"enforce_eager": mode == "eager"}
    answers.serve(CoreEngine(Path(folder), "float32", backend="vllm", block_size=32, options=options))


if __name__ == "__main__":
    main(*sys.argv[1:])
