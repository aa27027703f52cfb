"""Messages between simulated processes: each takes a while, and keeps its place behind those sent before it."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, get_args

from mesh.wire.frames import Sender
from mesh.wire.messages import Message
from mesh.wire.placement import PlacementStatus
from mesh.wire.status import EngineStatus, GatewayStatus, SupervisorStatus
from simulation.kernel import Kernel

Receive = Callable[[str, Any], None]
Observe = Callable[[Sender, EngineStatus], None]
OtherStatus = GatewayStatus | PlacementStatus | SupervisorStatus
Watch = Callable[[Sender, Any], None]


class Network:
    """Carries messages between simulated processes. ``latency_s`` is that of a control message. Nothing is lost: see
    `FaultyNetwork`.
    """

    has_faults = False

    def __init__(self, kernel: Kernel, latency_s: float) -> None:
        self._kernel = kernel
        self._latency_s = latency_s
        self._inboxes: dict[str, Receive] = {}
        self._listeners: dict[str, Observe] = {}
        self._watchers: dict[type[OtherStatus], dict[str, Watch]] = {kind: {} for kind in get_args(OtherStatus)}
        self._welcomes: dict[str, Callable[[], None]] = {}
        self._overhearing: list[Observe] = []

    def connect(self, process: str, receive: Receive) -> None:
        """Messages to ``process`` go to ``receive(sender, message)``."""
        self._inboxes[process] = receive

    def hear(self, process: str, hear: Watch) -> None:
        """Do as `connect`, with the incarnation of the sender."""
        self.connect(process, lambda sender, message: hear(_first(sender), message))

    def greet(self, process: str, welcome: Callable[[], None]) -> None:
        """Let a process greet its followers. ``welcome`` is called when somebody begins to follow ``process``."""
        self._welcomes[process] = welcome

    def follow(self, processes: Iterable[str]) -> None:
        """Somebody follows the statuses of these from now on."""
        self._kernel.after(self._latency_s, self._welcome, processes)

    def _welcome(self, processes: Iterable[str]) -> None:
        for process in sorted(processes):  # sets of names have another order in each process
            if (welcome := self._welcomes.get(process)) is not None:
                welcome()

    def subscribe(self, process: str, observe: Observe) -> None:
        """Let a process hear engines. ``process`` hears all statuses of engines."""
        self._listeners[process] = observe

    def watch(self, process: str, kind: type[OtherStatus], observe: Watch) -> None:
        """Let a process hear one kind of processes. ``process`` hears all statuses of that kind."""
        self._watchers[kind][process] = observe

    @property
    def is_heard(self) -> bool:
        """Return whether anybody hears statuses of engines."""
        return bool(self._listeners or self._overhearing)

    def is_watched(self, kind: type[OtherStatus]) -> bool:
        """Return whether anybody hears statuses of that kind."""
        return bool(self._watchers[kind])

    def overhear(self, observe: Observe) -> None:
        """An engine that hears all statuses, its own among them, when all other engines do."""
        self._overhearing.append(observe)

    def send(self, sender: str, to: str, message: Message) -> None:
        self._kernel.at(self._kernel.now + self._latency_s, self._inboxes[to], sender, message)

    def publish(self, sender: Sender, status: EngineStatus) -> None:
        for observe in self._listeners.values():
            self._kernel.at(self._kernel.now + self._latency_s, observe, sender, status)
        if self._overhearing:
            self._kernel.at(self._kernel.now + self._latency_s, self._be_overheard, sender, status)

    def tell(self, sender: Sender, status: OtherStatus) -> None:
        """Do as `publish`, for what is no engine."""
        for observe in self._watchers[type(status)].values():
            self._kernel.at(self._kernel.now + self._latency_s, observe, sender, status)

    def live(self, sender: Sender) -> None:
        """Let processes that watch over leases notice that the sender lives. Here nobody dies."""

    def _be_overheard(self, sender: Sender, status: EngineStatus) -> None:
        for observe in self._overhearing:
            observe(sender, status)

    def forget(self, process: str, peer: str) -> None:
        """Forget a dead peer. ``process`` drops what waits for ``peer``, whom it holds for dead."""


@cache
def _first(process: str) -> Sender:
    return Sender(process, 1)
