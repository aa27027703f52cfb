"""Child of `bench.peers.engines`: our engine's core and the torch executor, joined as the engine process joins them.

python -m bench.peers.core_engine MODEL_FOLDER DTYPE [SPECULATION]
"""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.peers.rounds import Answers
from engines.core import EngineCore
from engines.effects import Effect
from engines.loading import load
from engines.process import settings_of
from kvtransfer.peer_memories import PeerMemories
from kvtransfer.protocol import Send
from mesh.rules import DraftMethod
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling, StepTokens, Submit

GATEWAY, SERVICE = "gateway", "model"
SLO = Slo(ttft_s=60.0, tpot_s=10.0)


class CoreEngine:
    """An engine with its default limits for the model in a folder. ``speculation``: of `DraftMethod`; empty: none."""

    def __init__(self, folder: str, dtype: str, speculation: str = "") -> None:
        method = DraftMethod(speculation) if speculation else None
        services = (ServiceSpec(SERVICE, folder, SLO, dtype, speculation=method),)
        engine = EngineSpec("engine", Role.MULTIPLEX, (SERVICE,))
        topology = Topology("bench", Path(), services, (engine,), ())
        peers = PeerMemories()
        loaded = load(topology, engine, peers)
        self._executor = loaded.executor
        self._core = EngineCore(settings_of(topology, engine), loaded.services, peers.can_open)
        self._num_requests = 0

    def generate(self, prompts: Sequence[list[int]], num_tokens: int, grammar: str = "") -> Iterator[Mapping[str, int]]:
        sampling = Sampling(max_tokens=num_tokens, seed=0, temperature=0.0, ignore_eos=True, grammar=grammar)
        for prompt in prompts:
            self._num_requests += 1
            spec = RequestSpec(str(self._num_requests), GATEWAY, SERVICE, prompt, sampling, SLO.ttft_s, SLO.tpot_s)
            self._core.receive(GATEWAY, Submit(spec, Epoch(0)), [], time.monotonic())
        while not self._core.is_idle:
            yield self._step()

    def _step(self) -> Mapping[str, int]:
        """Compute an iteration. Return how many tokens each request got."""
        batch, effects = self._core.next_batch(time.monotonic())
        if batch is None:
            raise RuntimeError(f"nothing to compute though requests are here: {self._core!r}")
        return _tokens([*effects, *self._core.finish_step(self._executor.execute(batch), time.monotonic())])


def _tokens(effects: Iterable[Effect]) -> dict[str, int]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    steps = [message for message in messages if isinstance(message, StepTokens)]
    return {delta.request: len(delta.tokens) for step in steps for delta in step.deltas}


if __name__ == "__main__":
    answers = Answers()
    answers.serve(CoreEngine(*sys.argv[1:]))
