"""The composition root of a supervisor: what one host of a mesh runs, from its topology on."""

import subprocess
import sys
from collections.abc import Callable, Sequence

from mesh.addresses import supervisor_id
from mesh.clock import SystemClock
from mesh.directory import directory
from mesh.errors import UserError
from mesh.process.incarnations import incarnation_of
from mesh.process.process import open_sockets, user_error_of
from mesh.sockets.sockets import Sockets
from mesh.supervisor.plan import StartPlan
from mesh.supervisor.supervisor import Supervisor
from mesh.supervisor.takeover import Takeover
from mesh.topology.schema import Topology
from mesh.wire.frames import Sender
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import ChildStatus


def prepare_models(topology: Topology, host: str) -> int:
    """Fetch and convert what is not in the cache yet, in a process of its own: it shows its progress and its errors.

    The answer is its exit code.
    """
    engines = [engine for engine in topology.engines if engine.host == host]
    names = {name for engine in engines for name in engine.services}
    if any(gateway.host == host for gateway in topology.gateways):
        names |= {service.name for service in topology.services}
    references = dict.fromkeys(service.model for service in topology.services if service.name in names)
    references.pop("", None)  # of services that servers of others have
    if not references:
        return 0
    command = [sys.executable, "-m", "engines.models", "prepare", *references]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode


async def host(
    takeover: Takeover,
    plan: StartPlan,
    *,
    on_start: Callable[[Supervisor], None],
    on_change: Callable[[Sequence[ChildStatus]], None],
    on_ready: Callable[[str | None], None],
    on_demand: Callable[[str], None] = lambda process: None,
) -> None:
    """Supervise until all is stopped or left to another supervisor. Raise `UserError` if a new mesh cannot start."""
    topology, ties = takeover.topology, takeover.ties
    process, places = supervisor_id(takeover.host), ties.read_places()
    me = Sender(process, incarnation_of(takeover.runtime, process, takeover.host, places))
    key = ties.read_key(topology.curve_key)
    sockets: Sockets[SupervisorMessage] = open_sockets(
        me, SupervisorMessage, directory(topology, places), key, topology.timing.status_gap_s
    )
    supervisor = Supervisor(
        takeover.host,
        commands=takeover.commands,
        plan=plan,
        sockets=sockets,
        runtime=takeover.runtime,
        topology=takeover.copy,
        timing=topology.timing,
        clock=SystemClock(),
        on_change=on_change,
        on_demand=on_demand,
        places_file=ties.places,
    )
    on_start(supervisor)
    try:
        await supervisor.run(on_ready)
    except BaseExceptionGroup as group:
        if error := user_error_of(group):
            raise UserError(str(error)) from None
        raise
    finally:
        await sockets.close()
