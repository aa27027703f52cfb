"""vLLM's executor on prompts with images: pickled prompts on standard input, their greedy answers on standard output.

Run with the interpreter that has vLLM: FOLDER. Each prompt is (tokens, images). The answers come in several ways, by
name: each must give the same.
"""

import os
import pickle
import sys
from itertools import count

from engines.scheduling.batch import Chunk
from engines.vllm_engine.backend import open_memory, start_vllm
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo
from mesh.wire.control import Role
from mesh.wire.images import PlacedImage
from mesh.wire.requests import Sampling
from tests.engines.runner import Runner

SERVICE, BLOCK_SIZE, NUM_TOKENS = "sight", 32, 12
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0)

Prompt = tuple[list[int], tuple[PlacedImage, ...]]


class Seeing(Runner):
    """A runner whose requests show images."""

    images: tuple[PlacedImage, ...] = ()

    def execute(self, *chunks: Chunk) -> list[object]:  # type: ignore[override]
        import msgspec

        return list(self._compute([msgspec.structs.replace(chunk, images=self.images) for chunk in chunks]))


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print
    engine = EngineSpec(
        "engine", Role.MULTIPLEX, (SERVICE,), backend="vllm", block_size=BLOCK_SIZE, chunk_tokens=256,
        kv_memory_bytes=2**25, options={"enforce_eager": True}, device="cpu",
    )  # fmt: skip
    spec = ServiceSpec(SERVICE, sys.argv[1], Slo(10.0, 1.0))
    model = start_vllm(engine, spec, open_memory(engine, [spec]))
    free = count()
    runner = Seeing(model.service.compute, lambda: next(free), BLOCK_SIZE)
    prompts: list[Prompt] = pickle.load(sys.stdin.buffer)
    given: dict[str, list[list[int]]] = {"whole": [], "in chunks": [], "gone on": []}
    for number, (tokens, images) in enumerate(prompts):
        runner.images = images
        whole = runner.generate(f"{number}", tokens, GREEDY, NUM_TOKENS)
        given["whole"].append(whole)
        given["in chunks"].append(runner.generate(f"{number}-cut", tokens, GREEDY, NUM_TOKENS, split=7))
        known = [*tokens, *whole[:5]]  # as after the death of an engine: all is computed anew
        gone_on = runner.generate(f"{number}-on", known, GREEDY, NUM_TOKENS - 5)
        given["gone on"].append([*whole[:5], *gone_on])
    pickle.dump(given, answers)
    answers.flush()
    os._exit(0)  # nothing to save, and vLLM takes its time


if __name__ == "__main__":
    main()
