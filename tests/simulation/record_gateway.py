"""``python -m tests.simulation.record_gateway``: records the stream of `test_parity` anew, on real sockets."""

import asyncio
import tempfile

from mesh.sockets.sockets import Sockets
from mesh.wire.control import PolicyChoice, SetPolicy
from mesh.wire.frames import Sender
from mesh.wire.messages import SupervisorMessage
from mesh.wire.requests import Epoch, Moved
from mesh.wire.status import ChildStatus, SupervisorStatus
from tests.router.cluster import M0, M1, P0
from tests.router.scripted_mesh import STOP, SUPERVISOR, TIMING, Mesh, first, rest, spec, wait_until_serving
from tests.simulation.gateway_events import STREAM, Recorder

ENGINES = (P0, M0, M1)


class RecordedMesh(Mesh):
    def __init__(self, folder):
        super().__init__(folder, ENGINES)
        self.recorder = None

    def wrapped(self, core):
        self.recorder = Recorder(core)
        return self.recorder


def topology_in(folder):
    return Mesh(folder, ENGINES).topology


async def record(folder):
    async with RecordedMesh(folder).running() as mesh:
        await wait_until_serving(mesh, len(ENGINES))
        await migrate(mesh)
        await kill(mesh)
        mesh.engines[M0].say(SetPolicy(PolicyChoice("least_loaded", {}, 1)))
        last = mesh.router.submit(spec("last"))
        submit = await mesh.engines[M0].accept()
        draining = asyncio.create_task(mesh.router.drain())
        await asyncio.sleep(0)
        mesh.engines[M0].say_tokens(submit, 30, 31, finish=STOP)
        assert await rest(last) == [30, 31]
        await draining
        return mesh.recorder.lines


async def migrate(mesh):
    """One request is prefilled here, decoded there, and moves to a third engine; one is cancelled."""
    moving, unwanted = mesh.router.submit(spec("moving")), mesh.router.submit(spec("unwanted"))
    submit = await mesh.engines[P0].accept()
    await mesh.engines[P0].accept()
    mesh.engines[P0].say_tokens(submit, 10)
    await first(moving)
    unwanted.cancel()
    decoding, other = (M0, M1) if submit.decode_engine == M0 else (M1, M0)
    mesh.engines[decoding].say_tokens(submit, 10, 11, hop=1)
    assert (await first(moving)).tokens == (11,)
    mesh.engines[decoding].say(Moved("moving", Epoch(submit.epoch.attempt, 2), other))
    mesh.engines[other].say_tokens(submit, 10, 11, 12, finish=STOP, hop=2)
    assert await rest(moving) == [12]


async def kill(mesh):
    """An engine ends under a request, and its supervisor tells; another one falls silent, and its lease ends."""
    supervisor = Sockets(Sender(SUPERVISOR, 1), mesh.endpoints, SupervisorMessage)
    supervisor.bind()
    generation = mesh.router.submit(spec("bereaved"))
    submit = await mesh.engines[P0].accept()
    mesh.engines[P0].say_tokens(submit, 20)
    await first(generation)
    await mesh.kill(P0)
    ended = SupervisorStatus(1, "local", 1, [ChildStatus(P0, "engine", None, "restarting", 1, None, 1)])
    while all("SupervisorStatus" not in line for line in mesh.recorder.lines):
        supervisor.publish(ended)
        await asyncio.sleep(TIMING.heartbeat_s / 4)
    await mesh.kill(M1)
    again = await mesh.engines[M0].accept()
    mesh.engines[M0].say_tokens(again, 21, finish=STOP)
    assert await rest(generation) == [21]
    await asyncio.sleep(2 * TIMING.lease_s)
    await supervisor.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        STREAM.write_text("\n".join(asyncio.run(record(folder))) + "\n")
