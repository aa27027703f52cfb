"""Child of `bench.peers.engines`: our engine's core and an executor, joined as the engine process joins them.

python -m bench.peers.core_engine MODEL_FOLDER DTYPE [vllm]

The executor is the torch engine's; with a third argument it is vLLM's, under an interpreter that has it.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.rounds import Answers
from engines.core import EngineCore
from engines.effects import Effect
from engines.loading import load
from engines.process import settings_of
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import Send
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling, StepTokens, Submit

GATEWAY, SERVICE = "gateway", "model"
SLO = Slo(ttft_s=60.0, tpot_s=10.0)


class CoreEngine:
    """One model, with an engine's default limits; ``more`` are fields of its `EngineSpec`."""

    def __init__(self, folder: Path, dtype: str, **more: Any) -> None:
        service = ServiceSpec(SERVICE, str(folder), SLO, dtype)
        engine = EngineSpec("engine", Role.MULTIPLEX, (SERVICE,), **more)
        topology = Topology("bench", Path(), (service,), (engine,), ())
        peers = PeerMemories()
        loaded = load(topology, engine, peers)
        self._executor = loaded.executor
        self._core = EngineCore(settings_of(topology, engine), loaded.services, peers.can_open)
        self._num_rounds = 0

    def generate(self, prompts: Sequence[list[int]], num_tokens: int) -> Iterator[Mapping[str, int]]:
        core = self._core
        self._num_rounds += 1  # a request of an earlier round that came again would not be run
        sampling = Sampling(max_tokens=num_tokens, seed=0, temperature=0.0, ignore_eos=True)
        for index, prompt in enumerate(prompts):
            spec = RequestSpec(str(index), GATEWAY, SERVICE, prompt, sampling, SLO.ttft_s, SLO.tpot_s)
            core.receive(GATEWAY, Submit(spec, Epoch(self._num_rounds)), [], time.monotonic())
        while not core.is_idle:
            batch, effects = core.next_batch(time.monotonic())
            if batch is None:
                raise RuntimeError(f"nothing to compute though requests are here: {core!r}")
            yield _tokens([*effects, *core.finish_step(self._executor.execute(batch), time.monotonic())])


def _tokens(effects: Iterable[Effect]) -> dict[str, int]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    steps = [message for message in messages if isinstance(message, StepTokens)]
    return {delta.request: len(delta.tokens) for step in steps for delta in step.deltas}


def main(folder: str, dtype: str, executor: str = "torch") -> None:
    answers = Answers()
    of_vllm = {"backend": "vllm", "block_size": 32, "options": {"enforce_eager": True}}
    answers.serve(CoreEngine(Path(folder), dtype, **({} if executor == "torch" else of_vllm)))


if __name__ == "__main__":
    main(*sys.argv[1:])
