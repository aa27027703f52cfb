"""The supervisor of a host in virtual time: it tells of processes that end, and starts and ends engines when told to.

Of `mesh.supervisor` it has what others in the mesh notice.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mesh.supervisor.shared_devices import SharedDevices
from mesh.wire.control import SetRunning
from mesh.wire.frames import Sender
from mesh.wire.messages import SupervisorMessage
from mesh.wire.status import ChildStatus, SupervisorStatus
from simulation.faults.faulty_network import FaultyNetwork
from simulation.faults.incarnations import EngineIncarnations
from simulation.kernel import Kernel

NOT_STARTED = "its services cannot be loaded"


@dataclass(slots=True)
class _Child:
    incarnations: EngineIncarnations
    is_wanted: bool
    state: str
    up_since: float | None  # it takes a place from then on: it starts, serves or leaves
    last_exit: str | None = None

    @property
    def told(self) -> str:
        """The state that others are told: an engine that died is to start again."""
        return "restarting" if self.state == "running" and not self.incarnations.is_alive else self.state


class SimulatedSupervisor:
    """The supervisor of one host. ``spans``: see `SharedDevices`. ``others``: kinds of its host's other processes, by
    name. ``start_s``: from an engine's start until it is up.
    """

    def __init__(
        self,
        me: Sender,
        host: str,
        engines: Mapping[str, EngineIncarnations],
        spans: Mapping[str, Sequence[str]],
        others: Mapping[str, str],
        start_s: Callable[[str], float],
        kernel: Kernel,
        network: FaultyNetwork,
        heartbeat_s: float,
    ) -> None:
        self.num_changes = 0  # engines that started, and engines that ended
        self._over_s = 0.0  # that engines took their places, of those times that are over
        self._me = me
        self._host = host
        self._start_s = start_s
        self._kernel = kernel
        self._network = network
        self._heartbeat_s = heartbeat_s
        self._seq = 0
        self._others = others
        self._dead: Counter[str] = Counter()  # the newest incarnation of each process that has ended
        self._children = {
            name: _Child(incarnations, incarnations.is_alive, "running", kernel.now)
            if incarnations.is_alive
            else _Child(incarnations, False, "standby", None)
            for name, incarnations in engines.items()
        }
        running = [name for name, child in self._children.items() if child.is_wanted]
        self._shared, self._shares = SharedDevices(spans, running), bool(spans)
        network.connect(me.process, self._receive)

    def __repr__(self) -> str:
        return f"<SimulatedSupervisor { ({name: child.state for name, child in self._children.items()}) }>"

    def start(self, at: float) -> None:
        """Publish the first status at that time."""
        self._kernel.at(at, self._beat)

    def notice(self, ended: Sender) -> None:
        """A process of its host ended. Repeated in every status, as one may be lost."""
        self._dead[ended.process] = ended.incarnation
        self._publish()

    def engine_seconds(self, now: float) -> float:
        """The seconds that engines took their places, starting and leaving included."""
        return self._over_s + sum(
            now - child.up_since for child in self._children.values() if child.up_since is not None
        )

    def _receive(self, sender: str, message: SupervisorMessage) -> None:
        if not isinstance(message, SetRunning) or message.process not in self._children:
            return
        if self._shared.ask(message.process, message.running):
            self._share()
        else:
            self._want(message.process, message.running)

    def _share(self) -> None:
        """Start and end the engines that share devices."""
        for name, running in self._shared.wants(self._states()).items():
            self._want(name, running)

    def _states(self) -> dict[str, str]:
        return {name: child.told for name, child in self._children.items()}

    def _want(self, name: str, running: bool) -> None:
        child = self._children[name]
        if child.is_wanted is running:
            return
        child.is_wanted = running
        if running and child.state == "standby":
            self._begin(name, child)
        elif not running and child.state == "running":
            self._enter(child, "leaving")
            child.incarnations.stand_by(lambda: self._ended(name, child))

    def _begin(self, name: str, child: _Child) -> None:
        child.up_since = self._kernel.now
        self.num_changes += 1
        self._enter(child, "starting")
        self._kernel.after(self._start_s(name), self._ready, name, child)

    def _ready(self, name: str, child: _Child) -> None:
        if not child.is_wanted:
            self._ended(name, child)
        elif child.incarnations.begin():
            self._enter(child, "running")
        else:
            child.is_wanted, child.last_exit = False, NOT_STARTED
            self._ended(name, child)

    def _ended(self, name: str, child: _Child) -> None:
        assert child.up_since is not None, f"{name} was up"
        self._over_s += self._kernel.now - child.up_since
        self.num_changes += 1
        child.up_since = None
        if child.is_wanted:
            self._begin(name, child)
        else:
            self._enter(child, "standby")

    def _enter(self, child: _Child, state: str) -> None:
        child.state = state
        self._publish()
        if self._shares:
            self._shared.see(self._states())
            self._kernel.after(0.0, self._share)

    def _publish(self) -> None:
        self._seq += 1
        ended = self._dead
        children = [
            ChildStatus(name, "engine", None, child.told, 0, child.last_exit, ended[name])
            for name, child in self._children.items()
        ]
        children += [
            ChildStatus(name, kind, None, "running", 0, ended_incarnation=ended[name])
            for name, kind in self._others.items()
        ]
        self._network.tell(self._me, SupervisorStatus(self._seq, self._host, 0, children))

    def _beat(self) -> None:
        self._publish()
        self._kernel.after(self._heartbeat_s, self._beat)
