"""A process of a mesh that does nothing, in several ways: ``child.py MODE --topology FILE --id ID``."""

import asyncio
import os
import signal
import sys
from itertools import chain, repeat

from mesh.process.garbage import importing
from mesh.process.left_out import COLOURS, without

with importing(), without(COLOURS):  # as all processes of a mesh do
    from mesh.addresses import gateway_names, other_seat, supervisors
    from mesh.errors import UserError
    from mesh.membership.heartbeat import Heartbeat
    from mesh.process.process import ProcessShell, run_process
    from mesh.sockets.listeners import Inheritance, handover_file, offer
    from mesh.wire.control import ProcessState, Role
    from mesh.wire.messages import SupervisorMessage
    from mesh.wire.placement import PlacementStatus
    from mesh.wire.status import EngineStatus, GatewayStatus

STATES = {
    "slow": repeat(ProcessState.STARTING),
    "stuck": chain([ProcessState.READY] * 10, repeat(ProcessState.STUCK)),
}


def status_of(shell: ProcessShell, state: ProcessState) -> EngineStatus | GatewayStatus | PlacementStatus:
    process = shell.me.process
    if process in gateway_names(shell.topology):
        return GatewayStatus(1, state, "local", os.getpid(), "http://127.0.0.1:1", 0, 0)
    if shell.topology.placement is not None and process == shell.topology.placement.id:
        return PlacementStatus(1, state, "local", os.getpid(), "apply", "listening", 0, 60.0)
    return EngineStatus(
        seq=1, state=state, role=Role.MULTIPLEX, host="local", pid=os.getpid(), services=[], num_running=2,
        num_waiting=1, num_tokens=0, prefill_remaining_s=0.0, prefill_waiting_s=0.0, decode_step_s=0.0, min_slack_s=0.5,
        error="a step hangs" if state is ProcessState.STUCK else None,
    )  # fmt: skip


async def until_succeeded(shell: ProcessShell) -> None:
    """As a gateway: its predecessor leaves, and it leaves to its successor, or when it is asked to."""
    inherited = await asyncio.to_thread(Inheritance.take, handover_file(shell.runtime, other_seat(shell.me.process)))
    if inherited is not None:
        inherited.serving()
    offering = asyncio.ensure_future(offer(handover_file(shell.runtime, shell.me.process), {}))
    asked = asyncio.ensure_future(shell.drain.wait())
    await asyncio.wait({offering, asked}, return_when=asyncio.FIRST_COMPLETED)
    offering.cancel()
    asked.cancel()


async def serve(shell: ProcessShell) -> None:
    mode = sys.argv[1]
    if mode == "misconfigured":
        raise UserError(f"{shell.me.process}: no such model: nowhere; put one there")
    if mode == "broken":
        raise RuntimeError("the roof is on fire\nand more")
    if mode == "grouped":
        async with asyncio.TaskGroup():
            raise UserError("grouped: mend me")
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sockets = shell.sockets(SupervisorMessage)
    states = iter(STATES.get(mode, ()))
    heartbeat = Heartbeat(
        sockets, lambda: status_of(shell, next(states, ProcessState.READY)), shell.topology.timing.heartbeat_s
    )
    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(heartbeat.run())
        await (until_succeeded(shell) if mode == "heir" else shell.drain.wait())
        if mode == "stubborn":
            await asyncio.Event().wait()
        beating.cancel()
    await sockets.close()
    sys.stderr.write(f"{shell.me.process} drained\n")


if __name__ == "__main__":
    sys.exit(run_process("child", lambda topology: list(supervisors(topology)), serve, sys.argv[2:]))
