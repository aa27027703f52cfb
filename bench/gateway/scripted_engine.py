"""An engine that computes nothing: it answers every request with a fixed text, one token a step, as fast as it is told.

``python -m bench.gateway.scripted_engine STEP_MS --topology FILE --id ID``. It stands behind a gateway whose cost is
measured.
"""

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mesh.membership.heartbeat import Heartbeat
from mesh.process.process import ProcessShell, run_process
from mesh.sockets.sockets import Sockets
from mesh.wire.control import ProcessState, Role
from mesh.wire.messages import EngineMessage
from mesh.wire.requests import Accepted, Cancel, Delta, Epoch, FinishReason, RequestSpec, StepTokens, Submit
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus

NUM_BLOCKS = 100_000


@dataclass(slots=True)
class _Running:
    spec: RequestSpec
    epoch: Epoch
    num_generated: int = 0

    def step(self) -> Delta:
        """The answer is the prompt, over and over."""
        offset, prompt = self.num_generated, self.spec.prompt
        self.num_generated += 1
        finish = FinishReason.LENGTH if self.num_generated == self.spec.sampling.max_tokens else None
        return Delta(self.spec.id, self.epoch, offset, [prompt[offset % len(prompt)]], finish)


def told(seq: int, services: Iterable[str], step_s: float, num_running: int = 0) -> EngineStatus:
    """The status of an engine that has memory for everybody and is late for nobody."""
    prefill, decode = PrefillCost(1e-4, 1e-6), DecodeCost(step_s, 0.0)
    own = [ServiceStatus(name, NUM_BLOCKS, NUM_BLOCKS, 16, prefill, decode) for name in services]
    ready, role = ProcessState.READY, Role.MULTIPLEX
    return EngineStatus(seq, ready, role, "local", os.getpid(), own, num_running, 0, 0, 0.0, 0.0, step_s, 1e6)


class ScriptedEngine:
    def __init__(self, shell: ProcessShell, sockets: Sockets[EngineMessage], step_s: float) -> None:
        self._services = [service.name for service in shell.topology.services]
        self._sockets = sockets
        self._step_s = step_s
        self._running: dict[str, _Running] = {}
        self._seq = 0
        self._work = asyncio.Event()

    def status(self) -> EngineStatus:
        self._seq += 1
        return told(self._seq, self._services, self._step_s, len(self._running))

    async def listen(self) -> None:
        async for _, message, _ in self._sockets.messages():
            match message:
                case Submit(spec, epoch):
                    self._sockets.send(spec.gateway, Accepted(spec.id, epoch, self._seq + 1))
                    self._running[spec.id] = _Running(spec, epoch)
                    self._work.set()
                case Cancel(request, epoch) if request in self._running and self._running[request].epoch <= epoch:
                    del self._running[request]

    async def step(self) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(self._step_s)
            deltas: defaultdict[str, list[Delta]] = defaultdict(list)
            for running in list(self._running.values()):
                delta = running.step()
                deltas[running.spec.gateway].append(delta)
                if delta.finish:
                    del self._running[running.spec.id]
            for gateway, tokens in deltas.items():
                self._sockets.send(gateway, StepTokens(tokens))
            if not self._running:
                self._work.clear()


async def serve(shell: ProcessShell) -> None:
    sockets: Sockets[EngineMessage] = shell.sockets(EngineMessage)
    engine = ScriptedEngine(shell, sockets, float(sys.argv[1]) / 1000)
    heartbeat = Heartbeat(sockets, engine.status, shell.topology.timing.heartbeat_s)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run) for run in (heartbeat.run(), engine.listen(), engine.step())]
        await shell.drain.wait()
        for task in running:
            task.cancel()
    await sockets.close()


if __name__ == "__main__":
    sys.exit(
        run_process("bench.gateway.scripted_engine", lambda t: [engine.id for engine in t.engines], serve, sys.argv[2:])
    )
